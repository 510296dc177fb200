"""Numbers read off the logits as a table of sums of paths (see `table`), backward: no term's logits are ever formed."""

import torch
from torch import Tensor

from pathsum.paths.paths import source_layer
from pathsum.paths.readout import Readout
from pathsum.paths.table import DIRECT, Table, check_axes, numbered
from pathsum.runs.graded import graded_streams
from pathsum.runs.linear import each_head_transposed, head_covectors, heads_transposed, mixed_values


@torch.no_grad()
def cross(readout: Readout, *axes: str) -> Table:
    """The readout by one axis, or by two crossed: of order, source, position, head and layer.

    `values [cell(, cell), read]`, in the readout's unit (nats of a logit); they sum to the readout. Raises
    `NotApplicable` for an axis that is none, or for a head with its layer. Paper: “Path Expansion of Logits”.

    >>> run = pathsum.run(pathsum.open("two-layer-small"), "Mr Dursley was proud. Mr D")
    >>> target = pathsum.logit(run, "ur")
    >>> readout = pathsum.expand(run).toward(target.direction[None], target.position)
    >>> by_head = pathsum.cross(readout, "head")
    >>> most = by_head.values[:, 0].argmax()
    >>> print(by_head.labels[0][most], f"{by_head.values[most, 0]:.1f} of {target.value:.1f}")
    L1H1 7.7 of 11.7
    """
    check_axes(axes)
    known = axes if len(axes) == 2 else (*axes, "source" if axes == ("order",) else "order")
    known = tuple("head" if axis == "layer" else axis for axis in known)
    pair = next(pair for pair in _MADE if sorted(pair) == sorted(known))
    labels, values = _MADE[pair](readout)
    if pair != known:
        labels, values = labels[::-1], values.transpose(0, 1)
    if len(axes) == 1:
        labels, values = labels[:1], values.sum(1)
    if "layer" in axes:
        labels, values = _by_layer(labels, values, axes.index("layer"))
    return Table(axes, labels, values, readout.target)


Labelled = tuple[tuple[tuple[str, ...], ...], Tensor]


def _by_source_order_position(readout: Readout) -> tuple[tuple[str, ...], Tensor]:
    """`[source, order, position, read, *batch]`: one backward pass."""
    g = readout.covectors.unsqueeze(0)
    found: dict[str, Tensor] = {}

    def end(layer: int) -> None:
        for name, x in readout.sources.items():
            if source_layer(name) == layer:
                found[name] = torch.einsum("...pd,o...pd->op...", x, g)

    for block, seen in reversed(list(readout.frozen.layers)):
        end(block.layer)
        empty = torch.zeros_like(g[:1])
        g = torch.cat([g, empty]) + torch.cat([empty, heads_transposed(block, seen, g)])
    end(-1)
    names = tuple(readout.sources)
    orders = readout.frozen.weights.spec.n_layers + 1
    values = torch.stack([_longer(found[name], orders) for name in names])
    bias = readout.bias
    if bias is None:
        return names, values
    last = torch.zeros_like(values[:1])
    last[0, 0, readout.position] = bias
    return (*names, "unembed.bias"), torch.cat([values, last])


def _source_order(readout: Readout) -> Labelled:
    names, values = _by_source_order_position(readout)
    return (names, numbered(values.shape[1])), values.sum(2)


def _source_position(readout: Readout) -> Labelled:
    names, values = _by_source_order_position(readout)
    return (names, numbered(values.shape[2])), values.sum(1)


def _position_order(readout: Readout) -> Labelled:
    _, values = _by_source_order_position(readout)
    return (numbered(values.shape[2]), numbered(values.shape[1])), values.sum(0).transpose(0, 1)


def _head_order(readout: Readout) -> Labelled:
    """Forward: every order's stream as the last head reads it, against the readout as that head's output sees it."""
    orders = readout.frozen.weights.spec.n_layers + 1
    rows: list[Tensor] = []
    names = [DIRECT]
    # The stream after the last layer has the paths without heads as its order 0.
    for (block, seen), g in zip([*readout.frozen.layers, (None, None)], graded_streams(readout.frozen), strict=True):
        if block is None or seen is None:
            direct = torch.einsum("...pd,r...pd->r...", g[0], readout.covectors)
            rows.insert(0, _longer(direct.unsqueeze(0), orders).unsqueeze(0))
            continue
        r = head_covectors(block, seen, readout.covectors)
        found = torch.einsum("o...hpe,r...hpe->hor...", mixed_values(block, seen, g), r)
        rows.append(torch.nn.functional.pad(found.movedim(1, -1), (1, orders - 1 - found.shape[1])).movedim(-1, 1))
        names += [head.name for head in block.heads]
    values = torch.cat(rows)
    if readout.bias is not None:
        values[0, 0] += readout.bias
    return (tuple(names), numbered(orders)), values


def _by_head_source_position(readout: Readout) -> tuple[tuple[tuple[str, ...], ...], Tensor]:
    """`[head, source, position, read, *batch]`: backward, a covector for each last head, orders summed."""
    blocks = readout.frozen.blocks
    g = readout.covectors.new_zeros(1 + sum(block.n_heads for block in blocks), *readout.covectors.shape)
    g[0] = readout.covectors
    names, found = [DIRECT], {}

    def end(layer: int) -> None:
        for name, x in readout.sources.items():
            if source_layer(name) == layer:
                found[name] = torch.einsum("...pd,h...pd->hp...", x, g[: len(names)])

    for block, seen in reversed(list(readout.frozen.layers)):
        end(block.layer)
        r = head_covectors(block, seen, readout.covectors)
        # What already has its last head goes on through all heads; the readout itself (`direct`) through none.
        known = len(names)
        g[1:known] += heads_transposed(block, seen, g[1:known])
        g[known : known + block.n_heads] = each_head_transposed(block, seen, r).movedim(-3, 0)
        names += [head.name for head in block.heads]
    end(-1)
    sources = tuple(readout.sources)
    values = torch.stack([_longer(found[name], len(names)) for name in sources], dim=1)
    order = sorted(range(len(names)), key=lambda at: (at > 0, source_of(names[at])))
    labels, values = tuple(names[at] for at in order), values[order]
    if readout.bias is not None:
        last = torch.zeros_like(values[:, :1])
        last[0, 0, readout.position] = readout.bias
        sources, values = (*sources, "unembed.bias"), torch.cat([values, last], dim=1)
    return (labels, sources), values


def source_of(name: str) -> int:
    """The layer of a head's name; heads of one layer keep their order."""
    return -1 if name == DIRECT else int(name[1 : name.index("H")])


def _head_source(readout: Readout) -> Labelled:
    labels, values = _by_head_source_position(readout)
    return labels, values.sum(2)


def _head_position(readout: Readout) -> Labelled:
    (heads, _), values = _by_head_source_position(readout)
    return (heads, numbered(values.shape[2])), values.sum(1)


_MADE = {
    ("source", "order"): _source_order,
    ("source", "position"): _source_position,
    ("position", "order"): _position_order,
    ("head", "order"): _head_order,
    ("head", "source"): _head_source,
    ("head", "position"): _head_position,
}


def _by_layer(labels: tuple[tuple[str, ...], ...], values: Tensor, axis: int) -> Labelled:
    """Heads of a layer together."""
    layers = [source_of(name) + 1 for name in labels[axis]]
    total = torch.zeros(*values.shape[:axis], max(layers) + 1, *values.shape[axis + 1 :], dtype=values.dtype)
    total.index_add_(axis, torch.tensor(layers), values)
    names = (DIRECT, *(f"L{layer}" for layer in range(max(layers))))
    return (*labels[:axis], names, *labels[axis + 1 :]), total


def _longer(values: Tensor, count: int) -> Tensor:
    """Zeros after the last on the first axis."""
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])
