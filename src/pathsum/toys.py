"""Models whose circuits are known by construction, to try readings on and to test them with.

Every token, every copied token and every position has an axis of the residual stream of its own, so that what a head
reads and writes is a choice of axes:

    tokens [d_vocab] | copies [d_vocab] | outputs [d_vocab] | positions [n_ctx] | idle [8]

Positions enter queries and keys only, unless a toy says otherwise. Heads not named in a toy's docstring move an idle
axis and touch nothing. Each function gives a `Model` (logits `[pos, d_vocab]`), and raises `NotApplicable` for what
cannot be built. The models are not in the paper; what they show is. Paper: “Zero-Layer Transformers”; “Interpretation
as Skip-Trigrams”; “Virtual Attention Heads”; “Induction Heads”.

>>> run = pathsum.run(pathsum.toys.induction_model(), [3, 7, 5, 1, 3])
>>> run.logits[-1].argmax().item()                  # what came after 3
7
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from pathsum.errors import NotApplicable
from pathsum.weights.model import Model
from pathsum.weights.positions import LearnedQK
from pathsum.weights.spec import Attention, Spec
from pathsum.weights.weights import Weights

SHARP = 60.0
"""Score between what a head looks for and everything else: softmax weights beside it are below 1e-20."""

WORDS = ("?", "keep", "in", "mind", "at", "bay", "it", "them", "the", "old", "dogs", "a", "thought", "and", "ships",
         *"0123456789")  # fmt: skip
"""The vocabulary of `keep_in_mind_model`; the first stands for every other word."""

Trigram = tuple[int, int, int]


def bigram_model(table: Float[Tensor, "d_vocab d_vocab"], n_ctx: int = 32) -> Model:
    """Zero layers; logits after token t are `table[:, t]`: the direct path *is* the table."""
    d_vocab = len(table)
    spec = Spec(d_vocab, n_ctx, d_vocab, 0, 1, 1, 1, ())
    tensors = {"W_E": torch.eye(d_vocab, dtype=table.dtype), "W_U": table}
    return Model("toy-bigram", Weights.from_tensors(spec, tensors))


def skip_trigram_model(
    trigrams: list[Trigram], d_vocab: int = 12, n_ctx: int = 16, attention: float = 8.0, push: float = 5.0
) -> Model:
    """One layer; L0H0 has exactly the skip-trigrams `(source, destination, out)` given, L0H1 none.

    The destination's score for the source is `attention`, and attending to it fully adds `push` to the output's logit.
    Raises `NotApplicable` when a source or destination occurs twice: their products would plant further triples.
    """
    for place, what in enumerate(("source", "destination")):
        seen = [trigram[place] for trigram in trigrams]
        if len(set(seen)) != len(seen):
            raise NotApplicable(f"every {what} may occur once, or one head would have more trigrams than those given")
    axes = Axes(d_vocab, n_ctx)
    head = axes.head()
    for rank, (source, destination, out) in enumerate(trigrams):
        head["W_Q"][rank, axes.tokens[destination]] = attention
        head["W_K"][rank, axes.tokens[source]] = 1.0
        head["W_V"][rank, axes.tokens[source]] = push
        head["W_O"][axes.outputs[out], rank] = 1.0
    return axes.model("toy-skip-trigram", [[head, axes.idle_head(0)]], W_U=axes.reads("outputs"))


def keep_in_mind_model(attention: float = 8.0, push: float = 5.0) -> Model:
    """One layer with the paper's skip-trigram bug, and a tokenizer whose tokens are the words of `WORDS`.

    L0H0 attends from `in` and `at` to `keep`, and `keep` raises `mind` and `bay`. `keep … in mind` and
    `keep … at bay` are meant; the same two factors also raise `keep … in bay` and `keep … at mind`.
    """
    axes = Axes(len(WORDS), n_ctx=16)
    ids = {word: place for place, word in enumerate(WORDS)}
    head = axes.head()
    head["W_K"][0, axes.tokens[ids["keep"]]] = head["W_V"][0, axes.tokens[ids["keep"]]] = 1.0
    for destination, scale in (("in", attention), ("at", 0.75 * attention)):
        head["W_Q"][0, axes.tokens[ids[destination]]] = scale
    for out, scale in (("mind", push), ("bay", 0.9 * push)):
        head["W_O"][axes.outputs[ids[out]], 0] = scale
    model = axes.model("toy-keep-in-mind", [[head, axes.idle_head(0)]], W_U=axes.reads("outputs"))
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return replace(model, tokenizer=tokenizer)


def induction_model(d_vocab: int = 16, n_ctx: int = 48, push: float = 20.0) -> Model:
    """Two layers; L0H0 copies the previous token, L1H1 finds its copy and predicts what came after: induction.

    L1H1's keys are made from L0H0's output (K-composition) and nothing else is composed.
    """
    axes = Axes(d_vocab, n_ctx)
    finder = axes.head()
    finder["W_Q"][:d_vocab] = SHARP * axes.reads("tokens")
    finder["W_K"][:d_vocab] = axes.reads("copies")
    finder["W_V"][:d_vocab] = push * axes.reads("tokens")
    finder["W_O"][:, :d_vocab] = axes.reads("outputs").T
    # The first position can only look at itself, so its "previous token" is its own: no query may match it.
    finder["W_Q"][d_vocab] = axes.reads("tokens").sum(0)
    finder["W_K"][d_vocab] = -25 * axes.reads("positions")[0]
    layers = [[axes.previous_token_head("tokens", "copies"), axes.idle_head(0)], [axes.idle_head(1), finder]]
    return axes.model("toy-induction", layers, W_U=axes.reads("outputs"))


def virtual_head_model(d_vocab: int = 16, n_ctx: int = 32, push: float = 20.0) -> Model:
    """Two layers; L0H0 and L1H0 each move one position back, and only their composite reaches the logits.

    The virtual head L0H0 → L1H0 attends two back and copies; L1H0 reads by V-composition alone.
    """
    axes = Axes(d_vocab, n_ctx)
    first, second = axes.previous_token_head("tokens", "copies"), axes.previous_token_head("copies", "outputs")
    second["W_V"] *= push
    layers = [[first, axes.idle_head(0)], [second, axes.idle_head(1)]]
    return axes.model("toy-virtual-head", layers, W_U=axes.reads("outputs"))


def pointer_model(d_vocab: int = 24, n_ctx: int = 24, push: float = 20.0) -> Model:
    """Two layers, positions in the residual stream; induction by pointer arithmetic.

    L0H0 finds earlier copies of the present token and moves their *positions*; L1H1's queries are made from these
    (Q-composition), and it looks one step after them. Raises `NotApplicable` for more positions than tokens: what is
    moved goes to the axes of copies.
    """
    if n_ctx > d_vocab:
        raise NotApplicable(
            f"{n_ctx} positions do not fit the {d_vocab} axes of copies; pass n_ctx of at most {d_vocab}"
        )
    axes = Axes(d_vocab, n_ctx)
    axes.d_head = d_vocab + n_ctx
    finder, reader = axes.head(), axes.head()
    finder["W_Q"][:d_vocab], finder["W_K"][:d_vocab] = SHARP * axes.reads("tokens"), axes.reads("tokens")
    # A token is no earlier copy of itself.
    finder["W_Q"][d_vocab:], finder["W_K"][d_vocab:] = -2 * SHARP * axes.reads("positions"), axes.reads("positions")
    finder["W_V"][:n_ctx] = axes.reads("positions")
    finder["W_O"][:, :n_ctx] = axes.reads("copies")[:n_ctx].T
    reader["W_Q"][1:n_ctx] = SHARP * axes.reads("copies")[: n_ctx - 1]
    reader["W_K"][:n_ctx] = axes.reads("positions")
    reader["W_V"][:d_vocab] = push * axes.reads("tokens")
    reader["W_O"][:, :d_vocab] = axes.reads("outputs").T
    layers = [[finder, axes.idle_head(0)], [axes.idle_head(1), reader]]
    return axes.model("toy-pointer", layers, W_U=axes.reads("outputs"), residual_positions=True)


class Axes:
    """Which axis of the residual stream means what, and heads made from it."""

    def __init__(self, d_vocab: int, n_ctx: int) -> None:
        self.d_vocab, self.n_ctx, self.d_head = d_vocab, n_ctx, max(d_vocab + 1, n_ctx)
        starts = torch.arange(3)[:, None] * d_vocab + torch.arange(d_vocab)
        self.tokens, self.copies, self.outputs = starts
        self.positions = 3 * d_vocab + torch.arange(n_ctx)
        self.idle = 3 * d_vocab + n_ctx + torch.arange(8)
        self.d_model = 3 * d_vocab + n_ctx + 8

    def reads(self, axes: str) -> Float[Tensor, "size d_model"]:
        """The matrix that reads one group of axes."""
        index: Int[Tensor, " size"] = getattr(self, axes)
        return torch.eye(self.d_model, dtype=torch.float64)[index]

    def head(self) -> dict[str, Tensor]:
        """A head that does nothing yet."""
        rows = torch.zeros(3, self.d_head, self.d_model, dtype=torch.float64)
        columns = torch.zeros(self.d_model, self.d_head, dtype=torch.float64)
        return {"W_Q": rows[0], "W_K": rows[1], "W_V": rows[2], "W_O": columns}

    def idle_head(self, number: int) -> dict[str, Tensor]:
        """A head that reads one idle axis and writes another; no two of different number share any."""
        head = self.head()
        reads, writes = self.idle[2 * number], self.idle[2 * number + 1]
        head["W_Q"][0, reads] = head["W_K"][0, reads] = 1.0
        head["W_V"][0, reads] = head["W_O"][writes, 0] = 1.0
        return head

    def previous_token_head(self, source: str, target: str) -> dict[str, Tensor]:
        """A head that attends one position back and moves `source` axes there to `target` axes."""
        head = self.head()
        reads_positions = self.reads("positions")
        head["W_K"][: self.n_ctx] = reads_positions
        head["W_Q"][: self.n_ctx - 1] = SHARP * reads_positions[1:]
        head["W_Q"][0] += SHARP * reads_positions[0]
        head["W_V"][: self.d_vocab] = self.reads(source)
        head["W_O"][:, : self.d_vocab] = self.reads(target).T
        return head

    def model(
        self,
        name: str,
        layers: list[list[dict[str, Tensor]]],
        W_U: Float[Tensor, "d_vocab d_model"],
        residual_positions: bool = False,
    ) -> Model:
        n_heads = len(layers[0])
        facts = tuple(Attention(None if residual_positions else LearnedQK()) for _ in layers)
        shape = (self.d_vocab, self.n_ctx, self.d_model, len(layers), n_heads, self.d_head, n_heads)
        spec = Spec(*shape, facts, learned_positions=residual_positions)
        tensors = {"W_E": self.reads("tokens").T, "W_U": W_U, "W_pos": self.reads("positions").T}
        for layer, heads in enumerate(layers):
            for part in ("W_Q", "W_K", "W_V", "W_O"):
                tensors[f"L{layer}.{part}"] = torch.stack([head[part] for head in heads])
        return Model(name, Weights.from_tensors(spec, tensors))
