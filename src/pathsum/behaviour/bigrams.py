"""A text's bigrams beside a model's direct path (paper: "Zero-layer transformers")."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pathsum.errors import TextError
from pathsum.weights.weights import Weights

AT_ONCE = 1 << 22
"""Logits in memory at once."""


@dataclass(frozen=True)
class BigramComparison:
    """Per seen token, weighted by how often it is followed by something."""

    tokens: int
    """Bigrams counted."""
    entropy: float
    """Entropy of the text's own bigram table, nats: the least loss any bigram table can have on it."""
    loss: float
    """Loss of the direct path on the text, nats."""
    unigram_entropy: float
    rank_correlation: float
    """Spearman's, between counts and the direct path's logits over all outputs, mean over tokens seen ≥ 20 times."""

    @property
    def kl(self) -> float:
        """KL(text's bigrams ‖ direct path) in nats per token: exactly the loss beyond the entropy."""
        return self.loss - self.entropy


def bigram_counts(sequences: Int[Tensor, "sequence pos"], d_vocab: int) -> Int[Tensor, "pairs 3"]:
    """(first, second, count) for every bigram that occurs. Raises `TextError` where there is none."""
    if sequences.shape[1] < 2:
        raise TextError(f"the text has {sequences.shape[1]} token(s); bigrams need at least 2")
    codes = (sequences[:, :-1] * d_vocab + sequences[:, 1:]).flatten()
    values, counts = codes.unique(return_counts=True)
    return torch.stack([values // d_vocab, values % d_vocab, counts], dim=1)


@dataclass(frozen=True)
class Pairs:
    """Bigrams and their log-probabilities, nats."""

    first: Int[Tensor, " pair"]
    second: Int[Tensor, " pair"]
    count: Int[Tensor, " pair"]
    text: Float[Tensor, " pair"]
    """log(count / how often the first token is followed by any)."""
    direct_path: Float[Tensor, " pair"]


def frequent_pairs(weights: Weights, sequences: Int[Tensor, "sequence pos"], most: int) -> Pairs:
    """The `most` frequent bigrams of these sequences, the most frequent first, beside the direct path."""
    first, second, count = bigram_counts(sequences, weights.spec.d_vocab).T
    firsts = torch.zeros(weights.spec.d_vocab, dtype=torch.long).index_add(0, first, count)
    best = count.argsort(descending=True, stable=True)[:most]
    first, second, count = first[best], second[best], count[best]
    tokens, place = first.unique(return_inverse=True)
    found = torch.empty(len(best), dtype=torch.float64)
    for rows in torch.arange(len(tokens)).split(max(1, AT_ONCE // weights.spec.d_vocab)):
        here = (place >= rows[0]) & (place <= rows[-1])
        table = direct_log_probabilities(weights, tokens[rows])
        found[here] = table[place[here] - rows[0], second[here]].double()
    return Pairs(first, second, count, (count.double() / firsts[first]).log(), found)


def direct_log_probabilities(weights: Weights, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n d_vocab"]:
    """log softmax of the direct path `W_U W_E`, with the final norm (if any) scaled as for the embedding alone."""
    ends = weights.ends
    x = ends.W_E[:, tokens].mT
    x = ends.final_norm.apply(x, ends.final_norm.scale(x))
    logits = x @ ends.W_U.mT
    return (logits if ends.b_U is None else logits + ends.b_U).log_softmax(-1)


def compare_bigrams(weights: Weights, sequences: Int[Tensor, "sequence pos"], often: int = 20) -> BigramComparison:
    """The direct path against the bigram table of the given token sequences."""
    d_vocab = weights.spec.d_vocab
    first, second, count = bigram_counts(sequences, d_vocab).T
    total = int(count.sum())
    firsts = torch.zeros(d_vocab, dtype=torch.long).index_add(0, first, count)
    seconds = torch.zeros(d_vocab, dtype=torch.long).index_add(0, second, count)
    weight = count.double() / total
    entropy = -(weight * (count.double() / firsts[first]).log()).sum().item()
    share = seconds[seconds > 0].double() / total
    loss, correlations = 0.0, []
    occurring = firsts.nonzero()[:, 0]
    place = torch.searchsorted(occurring, first.contiguous())
    for rows in torch.arange(len(occurring)).split(max(1, AT_ONCE // d_vocab)):
        seen = occurring[rows]
        table = direct_log_probabilities(weights, seen)
        begin, end = torch.searchsorted(place, torch.stack([rows[0], rows[-1] + 1])).tolist()
        row, column = place[begin:end] - rows[0], second[begin:end]
        loss -= (weight[begin:end] * table[row, column].double()).sum().item()
        dense = torch.zeros(table.shape, dtype=torch.long)
        dense[row, column] = count[begin:end]
        chosen = firsts[seen] >= often
        correlations.append(spearman(dense[chosen], table[chosen]))
    unigram_entropy = -(share * share.log()).sum().item()
    return BigramComparison(total, entropy, loss, unigram_entropy, torch.cat(correlations).mean().item())


def spearman(counts: Int[Tensor, "row n"], scores: Float[Tensor, "row n"]) -> Float[Tensor, " row"]:
    """Rank correlation of each row of counts with that of scores, ties given their mean rank."""
    x, y = (ranks - ranks.mean(-1, keepdim=True) for ranks in (_ranks_of_counts(counts), _mean_ranks(scores)))
    return (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt()


def _ranks_of_counts(counts: Int[Tensor, "row n"]) -> Float[Tensor, "row n"]:
    """Mean ranks from how often each count occurs: there are few different ones, so nothing is sorted."""
    if not counts.numel():
        return counts.double()
    width = int(counts.max()) + 1
    places = counts + width * torch.arange(len(counts))[:, None]
    often = torch.bincount(places.flatten(), minlength=width * len(counts)).reshape(-1, width)
    ranks = often.cumsum(-1) - (often - 1) / 2
    return ranks.double().flatten()[places]


def _mean_ranks(x: Float[Tensor, "row n"]) -> Float[Tensor, "row n"]:
    values, order = x.sort(-1)
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=torch.double).expand(x.shape)
    tied = values[:, 1:] == values[:, :-1]
    if tied.any():
        edge = torch.ones(len(x), 1, dtype=torch.bool)
        first = ranks.where(torch.cat([edge, ~tied], 1), 0).cummax(-1).values
        last = ranks.where(torch.cat([~tied, edge], 1), torch.inf).flip(-1).cummin(-1).values.flip(-1)
        ranks = (first + last) / 2
    return torch.empty_like(ranks).scatter(-1, order, ranks)
