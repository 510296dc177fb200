"""The strongest paths: what is certified is what enumeration finds, and a bound is one."""

import numpy as np
import pytest
import torch

import oracle
from cases import BY_NAME, CASES, agree
from pathsum.errors import NotApplicable
from pathsum.paths.bounds import largest_singular_values, longest_outputs
from pathsum.paths.logits import expand
from pathsum.paths.search import strongest_paths
from pathsum.runs.run import run_weights
from pathsum.weights.model import Model

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=repr)


def exactly(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def readout_of(case, position: int = -1):
    run = run_weights(Model(case.name, case.weights), case.weights, case.tokens)
    u = torch.randn(1, case.spec.d_vocab, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return expand(run).toward(u, position)


def enumerated(readout) -> dict:
    terms = readout.terms(readout.frozen.weights.spec.n_layers)
    return dict(zip(terms.paths, terms.values[:, 0].tolist(), strict=True))


@EVERY_CASE
@pytest.mark.parametrize("position", [-1, 2])
@pytest.mark.parametrize("count", [1, 7, 10**5])
def test_certified_is_enumerated(case, position, count):
    readout = readout_of(case, position)
    every = enumerated(readout)
    found = strongest_paths(readout, count)
    assert found.certified
    sizes = sorted((abs(value) for value in every.values()), reverse=True)[:count]
    listed = found.values.abs().tolist()
    agree(exactly(listed), exactly(sizes[: len(listed)]), 1e-10)
    # A path that is left out although there is room adds nothing.
    assert all(size < 1e-12 for size in sizes[len(listed) :])
    assert len(set(found.paths)) == len(found.paths)
    agree(found.values, exactly([every[path] for path in found.paths]), 1e-10)
    agree(found.alone, found.values, 1e-10)
    assert found.error < 1e-10
    rest = sum(value for path, value in every.items() if path not in set(found.paths))
    assert found.rest == pytest.approx(rest, abs=1e-10 * sum(map(abs, every.values())))


@EVERY_CASE
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_beam_says_what_it_may_have_missed(case, width):
    readout = readout_of(case)
    every = enumerated(readout)
    found = strongest_paths(readout, 5, width=width)
    listed = set(found.paths)
    missed = max((abs(value) for path, value in every.items() if path not in listed), default=0.0)
    assert missed <= found.bound * (1 + 1e-9) + 1e-12
    agree(found.values, exactly([every[path] for path in found.paths]), 1e-10)
    assert found.certified == (found.bound <= found.values[-1].abs())


def test_a_narrow_beam_of_a_deep_model_is_not_certified_and_a_wide_one_is():
    """Paths of similar size: nothing can be passed by."""
    readout = readout_of(BY_NAME["three_layers_normed"])
    assert not strongest_paths(readout, 200, width=1).certified
    assert strongest_paths(readout, 200).certified


@EVERY_CASE
def test_no_path_writes_more_than_its_bound(case):
    readout = readout_of(case)
    longest = longest_outputs(readout.frozen, readout.sources)
    for path in enumerated(readout):
        if not path.heads:
            continue
        x = readout.frozen.carry(readout.sources[path.source], path.heads)
        for layer in range(path.heads[-1][0] + 1, case.spec.n_layers + 1):
            assert (x.norm(dim=-1) <= longest[layer] * (1 + 1e-9) + 1e-12).all(), path.name


def lengths_by_loops(case, stretch: float) -> np.ndarray:
    """The bound, head by head; `stretch` is by how much singular values may be overrated."""
    spec, arrays, record = case.spec, case.arrays, case.recorded
    heads: list[tuple[np.ndarray, np.ndarray]] = []
    longest = [np.zeros(len(case.tokens))]
    for layer in range(spec.n_layers):
        own = []
        for head in range(spec.n_heads):
            given = [x for _, start, x in oracle.sources(spec, arrays, record) if start <= layer]
            found = [np.linalg.norm(oracle.through_head(spec, arrays, record, layer, head, x), axis=-1) for x in given]
            for span, length in heads:
                reached = np.zeros(len(case.tokens))
                for t in range(oracle.tap_count(spec, layer, "V")):
                    kappa = np.linalg.norm(oracle.dense_OV(spec, arrays, layer, head, t) @ span, 2)
                    reached += stretch * kappa * (oracle.transport(record, layer, head, t) @ length)
                found.append(reached)
            W_O = oracle.dense_OV(spec, arrays, layer, head)
            own.append((np.linalg.svd(W_O)[0][:, : spec.d_head], np.max(found, axis=0)))
        heads += own
        longest.append(np.max([longest[-1], *(length for _, length in own)], axis=0))
    return np.array(longest)


@pytest.mark.parametrize("name", ["gpt2", "three_layers_rotary_rms", "gemma3", "multi_query", "convolution_sinusoidal",
                                  "convolution_rotary", "three_layers_alibi", "post_layer_norm"])  # fmt: skip
def test_the_bound_is_no_larger_than_said(name):
    case = BY_NAME[name]
    readout = readout_of(case)
    found = longest_outputs(readout.frozen, readout.sources).numpy()
    assert (found >= lengths_by_loops(case, 1.0) * (1 - 1e-9)).all()
    assert (found <= lengths_by_loops(case, case.spec.d_head ** (1 / 8)) * (1 + 1e-3)).all()


def test_singular_values_are_bounded_from_above_and_not_by_much():
    generator = torch.Generator().manual_seed(0)
    read = torch.randn(3, 4, 20, dtype=torch.float64, generator=generator)
    axes = torch.randn(5, 20, 6, dtype=torch.float64, generator=generator)
    true = torch.linalg.svdvals(read[:, None] @ axes)[..., 0]
    found = largest_singular_values(read, axes)
    assert (found >= true).all() and (found <= true * 4 ** (1 / 8)).all()
    agree(largest_singular_values(1e-200 * read, axes) * 1e200, found)
    sizes = 10.0 ** torch.tensor([0.0, -60, -120, -200, 50], dtype=torch.float64)
    agree(largest_singular_values(read, axes * sizes[:, None, None]) / sizes, found)


def test_what_cannot_be_searched_is_refused():
    case = BY_NAME["llama"]
    readout = readout_of(case)
    with pytest.raises(NotApplicable, match="at least 1"):
        strongest_paths(readout, 0)
    several = expand(readout.frozen.run).toward(torch.eye(case.spec.d_vocab, dtype=torch.float64)[:2])
    with pytest.raises(NotApplicable, match="one direction"):
        strongest_paths(several)
    batch = run_weights(Model(case.name, case.weights), case.weights, case.tokens.expand(2, -1))
    with pytest.raises(NotApplicable, match="one text"):
        strongest_paths(expand(batch).toward(torch.eye(case.spec.d_vocab, dtype=torch.float64)[:1]))
