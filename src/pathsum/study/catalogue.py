"""The catalogue: every reading named once. Command line, report and documentation are generated from it.

Adding a reading = one function in a module of `pathsum.study`, and one entry here.
"""

from pathsum.study.reading import Column, Reading

PAPER = "A Mathematical Framework for Transformer Circuits"
ATTENTION, NATS, NUMBER, COUNT = "attention", "nats", "1", "count"

HEAD = Column("head", "", "the head, as L1H6")
SOURCE = Column("source", "", "the earlier head, which writes")
DESTINATION = Column("destination", "", "the later head, which reads")
TOKEN_METRIC = (
    Column("token_score", NUMBER, "score in the basis in which tokens are spread evenly"),
    Column("token_ceiling", NUMBER, "its ceiling"), Column("token_z", NUMBER, "its z"),
    Column("token_effect", NUMBER, "token_score − baseline"),
)  # fmt: skip
CONTROLS = (
    Column("cyclic_score", NUMBER, "what the first diagram showed: a factor moved to the back in the norm", "O"),
    Column("sampled_baseline", NUMBER, "mean score of random matrices of the heads' shapes"),
    Column("sampled_error", NUMBER, "its standard error"),
)


def _errors(*names: str) -> tuple[Column, ...]:
    return tuple(Column(f"{name}_error", NATS, f"standard error of {name} over contexts") for name in names)


REMOVED = (
    Column("cost_frozen", NATS, "loss added by removal, all patterns, scales and MLP outputs as recorded"),
    Column("cost_live", NATS, "loss added by removal, the rest free to react"),
    *_errors("cost_frozen", "cost_live"),
)

READINGS: tuple[Reading, ...] = (
    Reading(
        "describe", "What the model is made of", "Transformer Overview; Path Expansion of Logits", ("shapes",),
        (Column("group", "", "what is counted, frozen or limited"), Column("name", "", "part"),
         Column("value", COUNT, "how many"), Column("note", "", "in words")),
        "describe",
    ),
    Reading(
        "reconstruction", "Reconstruction error",
        "The Path Expansion Trick; Path Expansion of Attention Scores QK Circuit", ("text",),
        (Column("quantity", "", "what is summed from its terms"), Column("dtype", "", "arithmetic"),
         Column("error", NUMBER, "max|Σ terms − value| / max|value|")),
        "on_tokens",
    ),
    Reading(
        "bigrams", "Direct path against bigrams", "Zero-Layer Transformers", ("text",),
        (Column("bigrams", COUNT, "bigrams in the text"), Column("unigram_entropy", NATS, "entropy of single tokens"),
         Column("bigram_entropy", NATS, "entropy of a token given the one before"),
         Column("direct_path_loss", NATS, "loss of softmax(W_U W_E)"),
         Column("kl", NATS, "KL(text's bigrams ‖ direct path), per token"),
         Column("rank_correlation", NUMBER, "Spearman, counts with logits, mean over tokens seen ≥ 20 times")),
        "on_tokens",
    ),
    Reading(
        "bigram_pairs", "The most frequent bigrams", "Zero-Layer Transformers", ("text",),
        (Column("first", "", "token"), Column("second", "", "the token after it"),
         Column("count", COUNT, "how often the text has it"),
         Column("text_log_probability", NATS, "log of the share of the first token's that are followed by the second"),
         Column("direct_log_probability", NATS, "the same by softmax(W_U W_E)")),
        "on_tokens",
    ),
    Reading(
        "spectra", "Copying and matching heads", "Summarizing OV/QK Matrices; Detecting Copying Behavior", ("weights",),
        (HEAD, Column("copying_score", NUMBER, "Σλ/Σ|λ| of W_U W_OV W_E, −1 to 1"),
         Column("matching_score", NUMBER, "Σλ/Σ|λ| of W_Eᵀ W_QK W_E"),
         Column("copying_departure", NUMBER, "√(1 − Σ|λ|²/‖·‖²) of W_U W_OV W_E; 0: normal; near 1: eigenvalues say "
                "little of its size and are ill-conditioned"),
         Column("matching_departure", NUMBER, "the same of W_Eᵀ W_QK W_E"),
         Column("own_token_rank", NUMBER, "mean share of outputs above the source's own token"),
         Column("own_token_rank_error", NUMBER, "its standard error; 0: every token was ranked"),
         Column("own_token_top", NUMBER, "share of tokens that are their own largest output"),
         Column("own_token_top_error", NUMBER, "its standard error")),
        "weights_only", shows_qk=True, also=("seed",),
    ),
    Reading(
        "eigenvalues", "Eigenvalues of OV and QK circuits", "Summarizing OV/QK Matrices", ("weights",),
        (HEAD, Column("circuit", "", "OV or QK"), Column("real", NUMBER, "real part"),
         Column("imaginary", NUMBER, "imaginary part")),
        "weights_only", shows_qk=True,
    ),
    Reading(
        "taps", "What heads say through each tap", "Summarizing OV/QK Matrices; Induction Heads", ("weights",),
        (HEAD, Column("circuit", "", "QK or OV"),
         Column("query_tap", COUNT, "positions between the destination and the token that its query is made from"),
         Column("key_tap", COUNT, "positions between the source and the token that its key is made from"),
         Column("value_tap", COUNT, "positions between the source and the token that is moved from it"),
         Column("weight", NUMBER, "root mean square over coordinates of the tap, in QK of the product of both taps; 1 "
                "where nothing is mixed"),
         Column("size", "score or nats", "root mean square entry of the table over tokens"),
         Column("score", NUMBER, "Σλ/Σ|λ| of that table: QK matches, OV copies"),
         Column("departure", NUMBER, "√(1 − Σ|λ|²/‖·‖²) of it; 0: normal")),
        "taps", shows_qk=True,
    ),
    Reading(
        "composition", "Composition of heads", "Three Kinds of Composition; Analyzing a Two-Layer Model", ("weights",),
        (Column("kind", "", "Q, K or V; of other readers in, gate, router or unembed"), SOURCE, DESTINATION,
         Column("score", NUMBER, "‖RW‖/(‖R‖‖W‖), Frobenius", "O"), Column("baseline", NUMBER, "1/√d_model: chance"),
         Column("ceiling", NUMBER, "largest score any relative rotation allows", "O"),
         Column("z", NUMBER, "‖RW‖² in standard deviations of a random rotation", "O"),
         Column("effect", NUMBER, "score − baseline; negative: the heads avoid each other", "O")),
        "composition", shows_qk=True, optional=TOKEN_METRIC + CONTROLS, also=("seed",),
    ),
    Reading(
        "matching", "Matching score of induction pairs", "Checking the Mechanistic Theory", ("weights",),
        (SOURCE, DESTINATION, Column("matching_score", NUMBER, "Σλ/Σ|λ| of W_Eᵀ W_QK^{h2} W_OV^{h1} W_E"),
         Column("k_effect", NUMBER, "K-composition less baseline", "O"),
         Column("k_z", NUMBER, "its z", "O")),
        "pairs", shows_qk=True,
    ),
    Reading(
        "attention", "Where heads look on a text", "Primarily Positional Attention Heads", ("text",),
        (HEAD, Column("previous_token", ATTENTION, "mean A[i, i−1]"),
         *(Column(f"lag_{lag}", ATTENTION, f"mean A[i, i−{lag}] over rows i ≥ {lag}") for lag in range(16))),
        "on_tokens",
    ),
    Reading(
        "positional", "Positional circuits", "Primarily Positional Attention Heads", ("weights",),
        (HEAD, Column("lag", COUNT, "destination − source"),
         Column("score", "score", "mean of what positions alone add to the score, each row centred; rotary: mean over "
                "pairs of tokens, centred over distances"),
         Column("spread", "score", "standard deviation over destinations; rotary: over pairs of tokens"),
         Column("matching_score", NUMBER, "rotary: Σλ/Σ|λ| of W_Eᵀ W_QK(Δ) W_E at Δ = lag")),
        "weights_only", shows_qk=True, also=("context",),
    ),
    Reading(
        "pointer", "Pointer arithmetic", "Induction Heads", ("weights",),
        (SOURCE, DESTINATION,
         Column("share_next", NUMBER, "share of positions p whose one strongest source is p + 1, in the table "
                "W_posᵀ W_OVᵀ W_QK W_pos with rows and columns centred"),
         Column("contrast", NUMBER, "next in standard deviations of that table's entries"),
         Column("next", "score", "mean of its entries one step after p, less the mean of all others"),
         Column("offset", COUNT, "step from p, −8 to 8, with the largest mean"),
         Column("q_effect", NUMBER, "Q-composition less baseline", "O"), Column("q_z", NUMBER, "its z", "O")),
        "pairs", shows_qk=True,
    ),
    Reading(
        "induction", "Induction heads", "Induction Heads", ("random tokens", "text", "weights"),
        (HEAD, Column("prefix_matching", ATTENTION, "on the tokens after all earlier copies; 1 is perfect"),
         Column("start_token", ATTENTION, "on the first token, in rows with no earlier copy"),
         Column("copying", NATS, "what OV adds to the attended token's logit, less its mean over the vocabulary"),
         Column("causal_effect", NATS, "loss on the repeats without the head, less with it; the rest reacts"),
         Column("causal_effect_frozen", NATS, "the same with patterns and scales as recorded"),
         Column("partner", "", "earlier head of strongest K-composition with z ≥ 10", "O"),
         Column("is_induction_head", "", "all three tests passed; thresholds in the manifest"),
         Column("prefix_matching_text", ATTENTION, "the same on the text"),
         Column("start_token_text", ATTENTION, "the same on the text"),
         Column("copying_text", NATS, "the same on the text")),
        "on_tokens",
    ),
    Reading(
        "repeats", "Loss on repeated random tokens", "Induction Heads",
        ("random tokens",),
        (Column("copy", COUNT, "first, second, third"), Column("loss", NATS, "mean loss in that copy")),
        "on_tokens",
    ),
    Reading(
        "in_context", "In-context learning score", "Function of Induction Heads", ("text",),
        (Column("sequences", COUNT, "contexts of text, 8 times --sequences or what the text has"),
         Column("early_token", COUNT, "from 1"), Column("late_token", COUNT, "from 1"),
         Column("early_loss", NATS, "of predicting that token"), Column("late_loss", NATS, "of predicting that token"),
         Column("score", NATS, "late less early; negative: context helps"),
         Column("error", NATS, "standard error over sequences"), Column("mean_loss", NATS, "over all positions")),
        "on_tokens",
    ),
    Reading(
        "loss_by_position", "Loss by position", "Function of Induction Heads", ("text",),
        (Column("token", COUNT, "the token predicted, from 1"), Column("loss", NATS, "of predicting it"),
         Column("loss_error", NATS, "its standard error over contexts"),
         Column("compared", "", "early or late: the two that the in-context score compares")),
        "on_tokens",
    ),
    Reading(
        "importance", "What each order of terms is worth", "Term Importance Analysis", ("text",),
        (Column("order", COUNT, "terms of up to this many heads; −1: uniform"), Column("loss", NATS, "their loss"),
         Column("gain", NATS, "loss saved by this order"),
         *_errors("loss", "gain")),
        "importance",
    ),
    Reading(
        "importance_layers", "What each layer's terms are worth", "Term Importance Analysis", ("text",),
        (Column("layer", "", "of the terms' last head"),
         Column("gain_individual", NATS, "loss saved by its order-1 terms beside the direct path"),
         Column("gain_ending", NATS, "the same with all terms that end in it"),
         Column("cost_without", NATS, "loss added when all terms that end in it are left out"),
         *_errors("gain_individual", "gain_ending", "cost_without")),
        "importance", optional=REMOVED,
    ),
    Reading(
        "importance_heads", "What each head's terms are worth", "Term Importance Analysis", ("text",),
        (HEAD, Column("gain_individual", NATS, "loss saved by its order-1 term beside the direct path"),
         Column("gain_ending", NATS, "the same with all terms that end in it"),
         Column("cost_without", NATS, "loss added when all terms that end in it are left out"),
         *_errors("gain_individual", "gain_ending", "cost_without")),
        "importance", optional=REMOVED,
    ),
    Reading(
        "importance_sources", "What each kind of source is worth, by order", "Term Importance Analysis", ("text",),
        (Column("kind", "", "of the terms' source: embed, pos, bias or mlp"), Column("order", COUNT, "heads in a term"),
         Column("gain_alone", NATS, "loss of the uniform guess less that of these terms alone"),
         Column("cost_without", NATS, "loss added when they are left out of all terms"),
         *_errors("gain_alone", "cost_without")),
        "importance", in_report=False,
    ),
    Reading(
        "importance_paths", "What each single path is worth", "Term Importance Analysis", ("text",),
        (Column("path", "", "source → heads"), Column("order", COUNT, "heads in it"),
         Column("gain_individual", NATS, "loss saved by its term beside the direct path; null for order 0, within it"),
         Column("cost_without", NATS, "loss added when its term is left out"),
         *_errors("gain_individual", "cost_without")),
        "importance", in_report=False,
    ),
    Reading(
        "virtual", "Virtual heads", "Virtual Attention Heads; Term Importance Analysis", ("weights", "text"),
        (SOURCE, DESTINATION,
         Column("size", NATS, "root mean square, over positions and vocabulary, of the centred logits of all terms "
                "whose last two heads these are"),
         Column("cost_without", NATS, "loss added when these terms are left out; null: not among the largest"),
         *_errors("cost_without"),
         Column("copying_score", NUMBER, "Σλ/Σ|λ| of W_U W_OV^{h2} W_OV^{h1} W_E; null likewise"),
         Column("v_effect", NUMBER, "V-composition less baseline", "O"), Column("v_z", NUMBER, "its z", "O")),
        "virtual", in_report=False,
    ),
    Reading(
        "carried", "How much paths carry, by source and depth", "Where Does This Leave Us?", ("text",),
        (Column("source", "", "embeddings straight to the logits, all their other paths, all paths from biases, from "
                "each MLP's output"),
         Column("variance_share", NUMBER, "covariance of its centred logits with all, over their variance; sums to 1"),
         Column("loss_up_to", NATS, "loss of this and all above together"),
         Column("loss_beside", NATS, "loss of this alone beside embeddings and biases"),
         Column("loss_rescaled", NATS, "loss of this and all above, the final norm's scale measured on their sum"),
         Column("saved_share", NUMBER, "what it adds to the loss saved beyond unigrams, those above being there"),
         Column("saved_share_up_to", NUMBER, "share of it that this and all above save")),
        "carried", in_report=False,
    ),
    Reading(
        "entries", "Strongest QK and OV entries",
        "Splitting Attention Head terms into Query-Key and Output-Value Circuits", ("weights",),
        (HEAD, Column("circuit", "", "QK or OV"), Column("rank", COUNT, "1 is the largest"),
         Column("row", "", "QK: destination token; OV: output token"), Column("source", "", "source token"),
         Column("value", "score or nats", "QK: centred score, queries' bias included; OV: centred logit")),
        "weights_only", shows_qk=True,
    ),
    Reading(
        "trigrams", "Skip-trigrams", "Interpretation as Skip-Trigrams", ("weights",),
        (HEAD, Column("rank", COUNT, "1 is the largest"), Column("source", "", "token attended to"),
         Column("destination", "", "token that attends"), Column("out", "", "token raised"),
         Column("effect", "score × nats", "qk · ov"), Column("qk", "score", "centred, queries' bias included"),
         Column("ov", NATS, "centred")),
        "skip_trigrams", shows_qk=True,
    ),
    Reading(
        "bugs", "Skip-trigram bugs", "Interpretation as Skip-Trigrams", ("weights", "text"),
        (HEAD, Column("rank", COUNT, "among the head's products of tokens that the text has; 1 is the strongest"),
         Column("source", "", "token attended to"), Column("destination", "", "token that attends"),
         Column("out", "", "token raised, though the text never has it there"),
         Column("effect", "score × nats", "qk · ov"),
         Column("source_destination", COUNT, "places of the destination with the source in the window before it"),
         Column("source_out", COUNT, "places before the output with the source in the window"),
         Column("expected", COUNT, "of the triple, were the two independent where the source is in sight; it has 0"),
         Column("qk", "score", "centred, queries' bias included"), Column("ov", NATS, "centred"),
         Column("seen_destination", "", "the text where source and destination are closest"),
         Column("seen_out", "", "the text where source and output are closest")),
        "skip_trigrams", shows_qk=True,
    ),
)  # fmt: skip

BY_NAME: dict[str, Reading] = {reading.name: reading for reading in READINGS}
