"""`Subject`: a model and a text under study, with what several readings share computed once."""

import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod
from numbers import Integral
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.behaviour.attention import default_block, repeated_tokens
from pathsum.behaviour.losses import residual_losses
from pathsum.circuits.spectra import embedding_gram, through_tokens, unembedding_gram
from pathsum.errors import TextError
from pathsum.runs.forward import forward
from pathsum.runs.graded import FrozenRun, frozen_run
from pathsum.runs.run import Run, run_weights
from pathsum.training.machine import give_back_freed_memory
from pathsum.weights.model import Model
from pathsum.weights.shapes import required_shapes
from pathsum.weights.tokens import starts_with_bos, token_ids
from pathsum.weights.weights import Weights

MOST_CONTEXT = 512
"""Attention patterns grow with the square of the context: a longer one is asked for."""
MOST_SEQUENCES = 16
KEPT = 8_000_000_000
"""Bytes of attention weights that stay in memory once they are read: the layers used last, two at least."""
RECORDED = 150_000_000
"""Entries of attention patterns, over layers, heads and contexts, that the text's run may keep: 600 MB in float32."""
REMOVALS = 5_000_000_000_000
"""Heads × parameters × tokens that may be run to remove every head once: some 10¹³ operations, under a minute."""
SCORED = 2_500_000_000
"""Heads × positions × d_vocab, the logits made to say what each head's terms are worth: under half a minute."""
SINGLE_TOKEN = 8
"""Losses of single tokens are noisy: what is said of one position takes this many times as many contexts."""
SAMPLE = Path(__file__).with_name("sample.txt")
MODULES = ("argparse", "ast", "calendar", "configparser", "csv", "dataclasses", "doctest", "fractions", "gzip",
           "heapq", "inspect", "mailbox", "optparse", "pdb", "pickle", "random", "shutil", "statistics", "tarfile",
           "textwrap", "threading", "turtle", "uuid", "zipfile")  # fmt: skip
"""The default text: these files of the running Python's standard library."""


@dataclass(frozen=True)
class Subject:
    """What readings are made of.

    `text` is a text or token ids; None stands for the sources of some standard-library modules (`MODULES`), or, where
    the model has no tokenizer, uniformly random tokens.
    """

    model: Model
    text: str | Sequence[int] | None = None
    text_name: str | None = None
    bos: bool | None = None
    sequences: int | None = None
    """How many contexts of text are run; None: 16, or as many as keep `RECORDED` entries of patterns, at least one."""
    batch: int = 4
    """How many sequences of repeated random tokens are run."""
    block: int | None = None
    """Tokens in a repeated block; None: 64 or what fits three times."""
    context: int | None = None
    """Tokens in a context of text, BOS included; None: as many as the model takes, at most `MOST_CONTEXT`."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.context is not None and not 2 <= self.context <= self.model.spec.n_ctx:
            raise TextError(f"a context of {self.context} tokens: {self.model.name} takes 2 to {self.model.spec.n_ctx}")
        for name, count in (("sequences", self.sequences), ("batch", self.batch)):
            if count is not None and (not isinstance(count, Integral) or count < 1):
                raise TextError(f"{name} is {count!r}, must be a whole number from 1")

    @property
    def context_length(self) -> int:
        return min(self.model.spec.n_ctx, MOST_CONTEXT) if self.context is None else self.context

    @property
    def sequence_count(self) -> int:
        if self.sequences is not None:
            return self.sequences
        return self.contexts_at_once

    @property
    def contexts_at_once(self) -> int:
        """`MOST_SEQUENCES`, or as many as keep `RECORDED` entries of patterns; one at least."""
        spec = self.model.spec
        kept = max(1, spec.n_layers * spec.n_heads * self.context_length**2)
        return max(1, min(MOST_SEQUENCES, RECORDED // kept))

    @cached_property
    def digest(self) -> str:
        """sha256 of the weights, taken once: files do not change under a study."""
        return self.model.digest()

    @cached_property
    def parameters(self) -> int:
        """Of the weight matrices; biases and gains are not counted."""
        return sum(prod(shape) for shape in required_shapes(self.model.spec).values())

    # ---- weights ----

    @cached_property
    def folded(self) -> Weights:
        """Folded weights in float64, for everything read off weights; of what was read `KEPT` stays, and no MLP."""
        return _kept(self.model.weights.to(torch.float64).fold(), 8)

    @cached_property
    def tables(self) -> Weights:
        """The same in float32: for tables over the vocabulary."""
        return _kept(self.folded.to(torch.float32), 4)

    @cached_property
    def through_tokens(self) -> Float[Tensor, "d_model d_model"]:
        """`W_E W_U`, float64: with it every head's OV eigenvalues are small."""
        return through_tokens(self.folded)

    @cached_property
    def embedding_gram(self) -> Float[Tensor, "d_model d_model"]:
        """`W_E W_Eᵀ`, float64."""
        return embedding_gram(self.folded)

    @cached_property
    def unembedding_gram(self) -> Float[Tensor, "d_model d_model"]:
        """`W_Uᵀ W_U`, float64."""
        return unembedding_gram(self.folded)

    @cached_property
    def raw(self) -> Weights:
        """Raw weights in float32, in memory: for runs."""
        return self.model.weights.to(torch.float32).load()

    @cached_property
    def frozen_weights(self) -> Weights:
        """Folded weights in float32, in memory but for their MLPs: for frozen runs."""
        return self.raw.fold().load_attention()

    def forget(self, *names: str) -> None:
        """Let go of what was computed once and is no longer needed, such as `folded`; it is computed again if it is."""
        for name in names:
            self.__dict__.pop(name, None)

    # ---- repeated random tokens ----

    @cached_property
    def block_length(self) -> int:
        return default_block(self.model.spec) if self.block is None else self.block

    @cached_property
    def repeats(self) -> Run:
        """Random tokens repeated three times, run and recorded."""
        return self._recorded(self.repeated_tokens)

    @property
    def removal_size(self) -> tuple[int, int]:
        """(sequences, copies) that heads are removed from: all, or as many as `REMOVALS` allows, one and two at least.

        Where one sequence is too much, its third copy is left out: all before it is as it was.
        """
        once = max(1, len(self.head_names) * self.parameters * 3 * self.block_length)
        return max(1, min(self.batch, REMOVALS // once)), 3 if once <= REMOVALS else 2

    @cached_property
    def removal_run(self) -> Run:
        """These, run and recorded."""
        sequences, copies = self.removal_size
        if (sequences, copies) == (self.batch, 3):
            return self.repeats
        length = self.repeated_tokens.shape[1] - (3 - copies) * self.block_length
        return self._recorded(self.repeated_tokens[:sequences, :length])

    @cached_property
    def repeated_tokens(self) -> Int[Tensor, "batch pos"]:
        return repeated_tokens(self.model.spec, self.block_length, self.batch, seed=self.seed)

    # ---- text ----

    @cached_property
    def text_source(self) -> str:
        """What the text is, for the manifest."""
        if self.text_name is not None:
            return self.text_name
        if self.text is not None:
            return "given"
        return "random tokens" if self.model.tokenizer is None else f"standard library: {', '.join(MODULES)}"

    @cached_property
    def text_tokens(self) -> Int[Tensor, " pos"]:
        """The whole text as one list of tokens, without BOS."""
        spec = self.model.spec
        if self.text is not None:
            return token_ids(self.model, self.text, bos=False)
        if self.model.tokenizer is None:
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randint(spec.d_vocab, (self.sequence_count * self.context_length,), generator=generator)
        return token_ids(self.model, standard_library_text(), bos=False)

    @cached_property
    def windows(self) -> Int[Tensor, "sequence pos"]:
        """The contexts that are run and recorded."""
        return self.contexts(self.sequence_count)

    def contexts(self, most: int) -> Int[Tensor, "sequence pos"]:
        """Up to `most` contexts, evenly spread over the text; one shorter one if the text is shorter.

        Raises `TextError` for a text of fewer than two tokens.
        """
        tokens, spec = self.text_tokens, self.model.spec
        if len(tokens) < 2:
            raise TextError(f"the text has {len(tokens)} token(s); readings of a text need at least 2")
        start = [spec.bos] if spec.bos is not None and starts_with_bos(spec, self.bos) else []
        length = min(self.context_length - len(start), len(tokens))
        count = min(most, len(tokens) // length)
        starts = torch.linspace(0, len(tokens) - length, count).long()
        cut = torch.stack([tokens[first : first + length] for first in starts.tolist()])
        return torch.cat([torch.tensor(start, dtype=torch.long).expand(count, -1), cut], dim=1)

    @cached_property
    def position_losses(self) -> Float[Tensor, "sequence predicted"]:
        """Losses of predicting every token of `SINGLE_TOKEN` times as many contexts; nothing else is kept of them."""
        contexts = self.contexts(SINGLE_TOKEN * self.sequence_count)
        return torch.cat([_losses(self.raw, tokens) for tokens in contexts.split(self.sequence_count)])

    @property
    def scored_rows(self) -> Int[Tensor, " row"]:
        """Positions whose losses say what terms are worth: all that predict, or evenly spread ones within `SCORED`."""
        every = self.windows[:, 1:].numel()
        most = SCORED // max(1, len(self.head_names) * self.model.spec.d_vocab)
        return torch.linspace(0, every - 1, max(1, min(every, most))).round().long()

    @cached_property
    def text_run(self) -> Run:
        """The text's contexts, run and recorded."""
        return self._recorded(self.windows)

    def _recorded(self, tokens: Int[Tensor, "sequence pos"]) -> Run:
        done = run_weights(self.model, self.raw, tokens)
        give_back_freed_memory()
        return done

    @cached_property
    def frozen_text(self) -> FrozenRun:
        return frozen_run(self.text_run, self.frozen_weights)

    def frozen_blocks(self) -> Iterator[tuple[int, FrozenRun]]:
        """The text's contexts with the place of the first, `contexts_at_once` at a time."""
        size = self.contexts_at_once
        if len(self.windows) <= size or "frozen_text" in self.__dict__:
            yield 0, self.frozen_text
            return
        for start in range(0, len(self.windows), size):
            yield start, frozen_run(self._recorded(self.windows[start : start + size]), self.frozen_weights)

    @cached_property
    def frozen_repeats(self) -> FrozenRun:
        return frozen_run(self.repeats, self.frozen_weights)

    @cached_property
    def sample_tokens(self) -> Int[Tensor, " pos"]:
        """The text attention is shown on: the given one or the sample that ships, cut to 128 tokens or the context."""
        if self.text is None and self.model.tokenizer is not None:
            tokens = token_ids(self.model, SAMPLE.read_text(encoding="utf-8").strip(), bos=self.bos)
        else:
            tokens = self.windows[0]
        return tokens[: min(128, self.context_length)]

    @property
    def head_names(self) -> list[str]:
        spec = self.model.spec
        return [f"L{layer}H{index}" for layer in range(spec.n_layers) for index in range(spec.n_heads)]


def _kept(weights: Weights, size: int) -> Weights:
    """Weights of `size` bytes a number whose ends stay in memory once they are read, and `KEPT` of their attention."""
    shapes = required_shapes(weights.spec).items()
    layer = size * sum(prod(shape) for name, shape in shapes if name in ("L0.W_Q", "L0.W_K", "L0.W_V", "L0.W_O"))
    read = lru_cache(max(2, KEPT // max(1, layer)))(weights.read_attention)
    return Weights(weights.spec, cache(weights.read_ends), weights.read_block, read)


@torch.no_grad()
def _losses(weights: Weights, tokens: Int[Tensor, "sequence pos"]) -> Float[Tensor, "sequence predicted"]:
    done = forward(weights, tokens)
    return residual_losses(weights, tokens, done.residual, done.final_scale)


def standard_library_text() -> str:
    """Sources of the modules in `MODULES`, those that this Python has, one after the other."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [folder / f"{name}.py" for name in MODULES]
    return "\n\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
