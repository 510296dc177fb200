"""The paper's claims: what each says, what is measured of it, and the rule of its verdict, stated before any run.

A claim asks for quantities by name; `claim_measures` measures them on each model, `judge` is given their estimates over
seeds. Thresholds stand here and nowhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pathsum.study.estimates import Estimate

Verdict = Literal["holds", "holds with changes", "fails", "not testable here"]
Estimates = Mapping[tuple[str, str], Estimate]
"""By (experiment, quantity)."""

EXACT = 1e-10
CARRIED, ROUGHLY = 0.9, 0.75
COPIES, MAJORITY = 9.0, 6.5
MOST_SEEDS = 0.8
PREVIOUS = 0.5
BESIDE_K = 0.5
CORNER = 0.5
LITTLE = 0.05
SEEDS = 3
"""Models that it takes to speak of shares of seeds."""
DOUBLINGS = 1.0
CAUSED = 0.5
INDUCED, NOT_INDUCED = 0.3, 0.1


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, or one of its open questions."""

    name: str
    title: str
    section: str
    says: str
    """The claim, in our words."""
    quantities: Mapping[str, str]
    """What is measured, by name, in words with its unit."""
    rule: str
    judge: Callable[[Estimates], Verdict | None]
    """None where what it needs was not measured."""
    examples: str = ""
    """What is shown of it in words, by its name in `claim_measures.EXAMPLES`."""
    models: str = ""
    """How the names of the experiments begin that it speaks of."""


def _of(found: Estimates, experiments: tuple[str, ...], quantity: str) -> Estimate | None:
    """The estimate of the first of the experiments that has one."""
    return next((found[name, quantity] for name in experiments if (name, quantity) in found), None)


SMALL = ("two-layer-small", "two-layer")
ONE_LAYER = ("one-layer-12", "one-layer")


def _exact(found: Estimates) -> Verdict | None:
    errors = [one.most for (_, quantity), one in found.items() if quantity in ("logits_error", "scores_error", "gauge")]
    return None if not errors else "holds" if max(errors) <= EXACT else "fails"


def _bigrams(found: Estimates) -> Verdict | None:
    shares = [one for (name, quantity), one in found.items() if quantity == "bigram_share" and name.startswith("zero")]
    if not shares:
        return None
    # The best trained of them: the claim is of a trained model.
    best = max(shares, key=lambda one: one.mean)
    return "holds" if best.least >= CARRIED else "holds with changes" if best.mean >= ROUGHLY else "fails"


def _copying(found: Estimates) -> Verdict | None:
    counts = [_of(found, ONE_LAYER, quantity) for quantity in ("copying_by_eigenvalues", "copying_by_ranks")]
    if None in counts:
        return None
    means = [one.mean for one in counts if one is not None]
    return "holds" if min(means) >= COPIES else "holds with changes" if max(means) >= MAJORITY else "fails"


def _induction(found: Estimates) -> Verdict | None:
    formed, previous = _of(found, SMALL, "induction_formed"), _of(found, SMALL, "partner_previous")
    beside, corner = _of(found, SMALL, "qv_beside_k"), _of(found, SMALL, "corner")
    if formed is None or previous is None or beside is None or corner is None:
        return None
    if formed.mean < MOST_SEEDS or previous.mean < PREVIOUS:
        return "fails"
    sure = formed.count >= SEEDS and beside.most < BESIDE_K and corner.mean >= MOST_SEEDS
    return "holds" if sure else "holds with changes"


def _second_order(found: Estimates) -> Verdict | None:
    second, later = _of(found, SMALL, "second_order_share"), _of(found, SMALL, "later_layer_lead")
    if second is None or later is None:
        return None
    if second.most < LITTLE and later.least > 0:
        return "holds"
    first = _of(found, SMALL, "first_order_share")
    return "holds with changes" if first is not None and second.most < first.least and later.least > 0 else "fails"


def _in_context(found: Estimates) -> Verdict | None:
    together, caused = _of(found, SMALL, "fall_after_rise"), _of(found, SMALL, "text_score_removed")
    if together is None or caused is None:
        return None
    near = (
        together.low is not None and together.high is not None and -DOUBLINGS < together.low < together.high < DOUBLINGS
    )
    if near and caused.least >= CAUSED:
        return "holds"
    return "holds with changes" if abs(together.mean) < DOUBLINGS or caused.mean >= CAUSED else "fails"


def _one_layer(found: Estimates) -> Verdict | None:
    control = _of(found, ("one-layer-control", "one-layer"), "best_prefix_matching")
    variants = [_of(found, (f"one-layer-{kind}-small",), "best_prefix_matching") for kind in ("smeared", "convolution")]
    known = [one for one in variants if one is not None]
    if control is None or not known:
        return None
    if control.most >= NOT_INDUCED:
        return "fails"
    can = sum(one.mean >= INDUCED for one in known)
    return "holds" if can == 2 else "holds with changes" if can else "fails"


def _minimal(found: Estimates) -> Verdict | None:
    alone = _of(found, SMALL, "previous_token_alone")
    if alone is None or alone.count < SEEDS:
        return None
    return "holds" if alone.mean >= MOST_SEEDS else "holds with changes" if alone.mean >= 1 - MOST_SEEDS else "fails"


def _deeper(found: Estimates) -> Verdict | None:
    slopes = [found.get((name, "virtual_share_slope")) for name in ("equal width", "equal parameters")]
    if None in slopes:
        return None
    rise = [one.low is not None and one.low > 0 for one in slopes if one is not None]
    return "holds" if all(rise) else "holds with changes" if any(rise) else "fails"


def _with_mlps(found: Estimates) -> Verdict | None:
    share = _of(found, ("two-layer-mlp-small",), "embedding_share")
    return None if share is None else "holds" if share.least >= CAUSED else "fails"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "exact", "Given its patterns, a transformer is the sum of its paths", "The Path Expansion Trick",
        "With attention frozen, logits are exactly a sum of end-to-end terms, scores a sum over pairs of paths, and a "
        "head acts through W_QK and W_OV alone.",
        {"logits_error": "relative error of the sum of all terms against logits, float64",
         "scores_error": "the same of the terms of attention scores",
         "gauge": "relative change of logits when every head's factors of W_QK and W_OV change and these do not"},
        f"holds if every model's errors are at most {EXACT:g}", _exact,
    ),
    Claim(
        "bigrams", "Zero layers approximate the bigram table", "Zero-Layer Transformers",
        "A model without layers learns the text's bigram log-likelihoods: its loss comes close to the bigram entropy.",
        {"bigram_share": "of the nats a token that bigrams say beyond unigrams, the share that the model says",
         "bigram_kl": "KL(text's bigrams ‖ model), nats a token",
         "rank_correlation": "Spearman, counts with logits, mean over tokens seen at least 20 times"},
        f"holds if the best trained says at least {CARRIED:.0%} (lower end), with changes from {ROUGHLY:.0%}", _bigrams,
    ),
    Claim(
        "copying", "Most heads of a one-layer model copy", "Detecting Copying Behavior",
        "Ten of twelve heads of the one-layer model copy significantly, judged by their OV circuits' eigenvalues.",
        {"copying_by_eigenvalues": "of 12 heads, those with a copying score of at least 0.5",
         "copying_by_ranks": "of 12 heads, those with a mean own-token rank of at most 0.25 (chance: 0.5)",
         "copying_disagree": "of 12 heads, those of which the two say different things",
         "bugs": "skip-trigrams among the ten strongest of a head that its text never has, mean a head"},
        f"holds if both counts are at least {COPIES:g} of 12 on average, with changes if one exceeds {MAJORITY:g}",
        _copying, "bug",
    ),
    Claim(
        "induction", "K-composition with a previous-token head makes induction heads",
        "Induction Heads; Three Kinds of Composition",
        "Two layers form induction heads whose keys read a previous-token head; Q- and V-composition are not "
        "significant; the heads lie in the corner of positive copying and positive matching.",
        {"induction_formed": "share of seeds with a head that passes the three tests",
         "induction_heads": "heads that pass them",
         "k_effect": "K-composition of the induction head with its partner, above chance",
         "k_z": "its z",
         "partner_previous": "the partner's attention to the previous token",
         "own_with_previous": "of its score on the tokens it should find, less the mean of all, the share that "
         "compares its own token with the one before the source",
         "qv_beside_k": "the largest effect of Q- and V-composition of any pair, over that of K",
         "corner": "share of seeds in which copying and matching score of the induction head both exceed 0.5",
         "corner_others": "other later heads in that corner",
         "edges_cyclic_only": "edges drawn with the cyclic permutation of the first diagram alone",
         "edges_corrected_only": "edges that vanish with it"},
        f"holds if at least {MOST_SEEDS:.0%} of seeds ({SEEDS} or more) form one, the partner looks back one token "
        f"(≥ {PREVIOUS:g}), Q and V stay below {BESIDE_K:g} of K (upper end) and {MOST_SEEDS:.0%} lie in the corner; "
        "with changes if the first two are so; else fails", _induction, "edge", "two-layer",
    ),
    Claim(
        "second order", "Terms of second order matter little, later single heads most", "Term Importance Analysis",
        "Of a two-layer model's loss, virtual heads save little; single heads of the second layer save most.",
        {"second_order": "loss saved by terms of two heads, nats a token",
         "second_order_share": "over all that is saved beyond the uniform guess",
         "first_order_share": "the same of terms of one head",
         "later_layer_lead": "loss saved by single heads of the second layer less that by the first's, nats"},
        f"holds if the share is below {LITTLE:.0%} (upper end) and the second layer leads (lower end); with changes if "
        "it leads and second order saves less than first; else fails", _second_order,
    ),
    Claim(
        "in-context", "Induction heads drive in-context learning", "Function of Induction Heads",
        "Over training, the loss late in a context falls when prefix matching rises; without the heads it is lost.",
        {"rise": "prefix matching comes halfway, log₂ of tokens seen",
         "fall_after_rise": "doublings of tokens by which the in-context score follows prefix matching",
         "repeats_after_rise": "the same of the loss on repeated random tokens",
         "composition_after_rise": "the same of K-composition of the pair, read off weights",
         "matching_after_rise": "the same of the pair's matching score, read off weights",
         "text_score": "in-context score on text, nats: the last tenth of positions less tokens 20 to 30",
         "text_score_removed": "share of it that is gone when the induction heads are removed",
         "repeats_removed": "the same of what repeats of random tokens save"},
        f"holds if both come within {DOUBLINGS:g} doubling of tokens (whole interval) and at least {CAUSED:.0%} of the "
        "score goes with the heads (lower end); with changes if one does on average; else fails", _in_context,
    ),
    Claim(
        "one layer", "One layer cannot; with smeared keys or convolution it can", "Induction Heads",
        "No head of a plain one-layer model is an induction head; where keys hold the token before, one is enough.",
        {"best_prefix_matching": "of the model's best head",
         "best_copying": "copying score of that head's OV circuit",
         "own_with_previous": "of its score on the tokens it should find, less the mean of all, the share that "
         "compares its own token with the one before the source"},
        f"holds if the control stays below {NOT_INDUCED:g} (upper end) and both variants reach {INDUCED:g} on average; "
        "with changes if one does; else fails", _one_layer, "", "one-layer",
    ),
    Claim(
        "minimal circuit", "Open: is the minimal circuit typical?", "Induction Heads",
        "An induction head reads a previous-token head alone; or also heads that look several tokens back?",
        {"previous_token_alone": "share of seeds in which all significant K-partners look back one token",
         "partners": "significant partners of an induction head", "partner_lag": "mean lag of their largest attention"},
        f"the minimal circuit is typical if at least {MOST_SEEDS:.0%} of {SEEDS} seeds or more have it alone, not if "
        f"fewer than {1 - MOST_SEEDS:.0%}", _minimal,
    ),
    Claim(
        "virtual heads", "Open: do virtual heads matter more in deeper models?", "Virtual Attention Heads",
        "With more layers, more of what the model knows is in terms of two heads and more.",
        {"virtual_share": "loss saved by terms of two heads and more, over all that is saved beyond the uniform guess",
         "virtual_share_slope": "change of that share a layer, over 2 to 6 layers"},
        "holds if it rises with depth (lower end above 0) at equal width and at equal parameters, with changes at one",
        _deeper,
    ),
    Claim(
        "with MLPs", "Open: how much of a model with MLPs expands?", "Where Does This Leave Us?",
        "Paths from embeddings alone, MLP outputs frozen and left out, save most of what the model saves.",
        {"embedding_share": "share of the loss saved beyond unigrams that all paths from embeddings save",
         "embedding_variance": "share of the variance of logits that they carry"},
        f"holds if it is at least {CAUSED:.0%} (lower end)", _with_mlps,
    ),
)  # fmt: skip
BY_NAME = {claim.name: claim for claim in CLAIMS}
