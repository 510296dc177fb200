"""Writes `docs/equations.md`: the paper's sections and formulas, where each is computed, and which tests hold it.

What a function does is the first sentence of its docstring, and readings stand under the sections that the catalogue
names. `make docs` runs it; a test holds the page to it, and every name on it to what exists.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathsum.study.catalogue import PAPER, READINGS

PAGE = Path(__file__).with_name("equations.md")
SLIPS = Path(__file__).with_name("slips.md")


@dataclass(frozen=True)
class Equation:
    """One formula."""

    formula: str
    place: str
    """`module:name` below `pathsum`."""
    tests: tuple[str, ...]
    """`file::name` below `tests/`."""


@dataclass(frozen=True)
class Section:
    """One section of the paper, by the title it has there."""

    title: str
    equations: tuple[Equation, ...] = ()
    note: str = ""


def equation(formula: str, place: str, *tests: str) -> Equation:
    return Equation(formula, place, tests)


SECTIONS = (
    Section("Transformer Overview", (
        equation("xᵢ₊₁ = xᵢ + Σ_h h(xᵢ) + m(…),  T(t) = W_U x₋₁", "runs.forward:forward",
                 "test_forward.py::test_logits_and_residuals_are_the_oracles"),
        equation("4 d_model² parameters a layer's attention, 8 d_model² its MLP", "study.describe:describe",
                 "test_describe.py::test_parameters_by_part_of_a_model_counted_by_hand"),
    )),
    Section("Virtual Weights and the Residual Stream as a Communication Channel", (
        equation("‖W_I W_O‖ / (‖W_I‖ ‖W_O‖) of every writer and every later reader", "circuits.composition:gram_pairs",
                 "test_virtual_weights.py::test_virtual_weights_of_every_writer_and_every_later_reader_are_the_oracles"),
        equation("no privileged basis: the same in x' = M x", "weights.weights:Weights.map",
                 "test_weights.py::test_a_rotation_of_the_residual_stream_changes_nothing",
                 "test_symmetries.py::test_gl_columns_are_unchanged_by_any_change_of_basis_and_o_columns_are_not"),
    ), "`composition --writers all --readers all`; `--metric tokens` measures in the one basis that tokens prefer."),
    Section("Attention Heads are Independent and Additive", (
        equation("W_O [r¹; r²; …] = Σ_h W_O^h r^h", "weights.blocks:Block.heads",
                 "test_weights.py::test_concatenate_and_project_is_the_sum_of_heads"),
    )),
    Section("Attention Heads as Information Movement", (
        equation("h(x) = (A ⊗ W_O W_V) x,  A = softmax(xᵀ W_Qᵀ W_K x)", "runs.attention:attend",
                 "test_forward.py::test_what_is_frozen_is_the_oracles",
                 "test_weights.py::test_scores_are_the_bilinear_form_of_W_QK_at_each_distance"),
        equation("W_QK = W_Qᵀ W_K", "weights.blocks:Head.QK",
                 "test_weights.py::test_scores_are_the_bilinear_form_of_W_QK_at_each_distance",
                 "test_weights.py::test_the_inner_basis_of_a_head_is_free"),
        equation("W_OV = W_O W_V", "weights.blocks:Head.OV", "test_weights.py::test_the_inner_basis_of_a_head_is_free"),
    )),
    Section("Zero-Layer Transformers", (
        equation("T = W_U W_E", "circuits.tables:direct_path",
                 "test_circuits.py::test_circuits_are_the_oracles_dense_tables"),
        equation("KL(bigrams of a text ‖ softmax(W_U W_E))", "behaviour.bigrams:compare_bigrams",
                 "test_behaviour.py::test_kl_is_the_loss_beyond_the_entropy_of_the_direct_path",
                 "test_behaviour.py::test_a_bigram_table_of_the_text_itself_has_no_kl"),
    )),
    Section("The Path Expansion Trick", (
        equation("T = Id ⊗ W_U W_E + Σ_h A^h ⊗ W_U W_OV^h W_E", "paths.logits:expand",
                 "test_paths.py::test_the_sum_of_all_terms_is_the_logits",
                 "test_paths.py::test_every_term_is_the_oracles_product_of_dense_matrices"),
        equation("frozen patterns and norm scales: the rest is linear", "runs.graded:frozen_run",
                 "test_forward.py::test_a_frozen_run_is_affine_in_the_embedding",
                 "test_forward.py::test_replaying_what_was_recorded_gives_the_same_run"),
    )),
    Section("Splitting Attention Head terms into Query-Key and Output-Value Circuits", (
        equation("W_Eᵀ W_QK W_E", "circuits.tables:qk_circuit",
                 "test_circuits.py::test_circuits_are_the_oracles_dense_tables"),
        equation("W_U W_OV W_E", "circuits.tables:ov_circuit",
                 "test_circuits.py::test_circuits_are_the_oracles_dense_tables"),
        equation("its largest entries, none missed, the table never formed", "extremes:largest_entries",
                 "test_extremes.py::test_none_of_the_largest_is_missed_whatever_is_skipped"),
    )),
    Section("Interpretation as Skip-Trigrams", (
        equation("[source] … [destination] → [out]: QK[destination, source] · OV[out, source]",
                 "circuits.trigrams:skip_trigrams",
                 "test_circuits.py::test_skip_trigrams_are_the_strongest_of_all_triples",
                 "test_trigrams.py::test_skip_trigrams_are_the_strongest_of_those_that_are_let_in"),
        equation("bugs: f₁(source, destination) · f₂(source, out) raises what no text has", "study.skip_trigrams:bugs",
                 "test_bugs.py::test_the_papers_bug_is_found_with_its_counts",
                 "test_bugs.py::test_the_factor_that_is_meant_raises_the_bug_too"),
    )),
    Section("Primarily Positional Attention Heads", (
        equation("W_QK of positions alone, by i − j or as a matrix", "circuits.positional:positional_scores",
                 "test_circuits.py::test_positional_scores_are_the_position_part_of_the_scores"),
        equation("the same of a rotary head, W_Qᵀ R(Δ)ᵀ W_K, as mean and spread over tokens",
                 "circuits.positional:rotary_curve",
                 "test_positions.py::test_the_rotary_curve_is_mean_and_spread_over_all_pairs_of_tokens"),
        equation("mean A[i, i − lag]", "behaviour.attention:lag_profile",
                 "test_behaviour.py::test_profiles_and_scores_are_the_oracles"),
    )),
    Section("Summarizing OV/QK Matrices", (
        equation("the non-zero λ of A B are those of B A", "lowrank:LowRank.eigenvalues",
                 "test_lowrank.py::test_eigenvalues_are_the_non_zero_ones_of_the_matrix_as_a_multiset",
                 "test_lowrank.py::test_a_matrix_too_large_to_form_still_answers"),
        equation("departure √(1 − Σ|λ|² / ‖·‖²)", "circuits.spectra:departure",
                 "test_circuits.py::test_departure_from_normality_is_that_of_the_whole_tables"),
    )),
    Section("Detecting Copying Behavior", (
        equation("Σλ / Σ|λ|", "circuits.spectra:positivity",
                 "test_circuits.py::test_positivity_is_one_for_a_copy_minus_one_for_its_opposite_and_nan_for_nothing",
                 "test_circuits.py::test_copying_and_matching_scores_are_those_of_the_whole_tables"),
        equation("how many outputs lie above a token's own", "circuits.spectra:own_token_ranks",
                 "test_circuits.py::test_own_token_ranks_count_strictly_larger_outputs"),
    ), "Positive eigenvalues prove no copying, as the paper grants; ranks stand beside them; disagreements are told."),
    Section("Three Kinds of Composition", (
        equation("Q: ‖W_QKᵀ W_OV‖, K: ‖W_QK W_OV‖, V: ‖W_OV W_OV‖, over the product of both norms",
                 "circuits.composition:layer_composition",
                 "test_composition.py::test_score_ceiling_and_z_are_the_oracles",
                 "test_composition.py::test_wrong_products_are_not_what_is_computed"),
        equation("‖R W‖² = ⟨RᵀR, W Wᵀ⟩", "circuits.gram:gram_products",
                 "test_gram.py::test_all_pairs_of_thin_and_wide_matrices_are_the_dense_ones"),
    )),
    Section("Analyzing a Two-Layer Model", (
        equation("chance, by random matrices: the paper's baseline", "circuits.composition:sampled_baseline",
                 "test_composition.py::test_the_sampled_baseline_lies_a_little_below_and_is_seeded"),
        equation("chance, exactly: mean and variance over all rotations (ours)", "circuits.composition:null_moments",
                 "test_composition.py::test_null_moments_are_those_of_sampled_rotations",
                 "test_composition.py::test_null_moments_are_exact_in_two_dimensions"),
    )),
    Section("Path Expansion of Logits", (
        equation("Id ⊗ W_U W_E + Σ A^h ⊗ … + Σ (A^{h₂} A^{h₁}) ⊗ W_U W_OV^{h₂} W_OV^{h₁} W_E",
                 "paths.logits:Expansion.terms",
                 "test_paths.py::test_every_term_is_the_oracles_product_of_dense_matrices"),
        equation("C(L, k) H^k paths of order k", "paths.paths:path_counts",
                 "test_paths.py::test_path_counts_are_binomials_times_powers"),
        equation("the strongest of them, certified (ours)", "paths.search:strongest_paths",
                 "test_search.py::test_certified_is_enumerated"),
    )),
    Section("Path Expansion of Attention Scores QK Circuit", (
        equation("score = Σ (A_q ⊗ A_k ⊗ W)", "paths.scores:expand_scores",
                 "test_scores.py::test_score_terms_sum_to_the_scores",
                 "test_scores.py::test_listed_pairs_of_paths_are_the_oracles"),
        equation("W_Eᵀ W_OVᵀ W_QK W_OV W_E of one pair of paths", "paths.qk_term:qk_term",
                 "test_qk_term.py::test_the_weights_of_a_term_are_the_oracles_product"),
    )),
    Section("Induction Heads", (
        equation("keys from tokens shifted by one: Id ⊗ A^{h₋₁} ⊗ W", "paths.scores:ScoreExpansion.by_order",
                 "test_induction_scores.py::"
                 "test_a_planted_induction_head_compares_its_token_with_the_one_before_the_source"),
        equation("pointer arithmetic: a query that holds a position, and looks one after it",
                 "circuits.pointers:pointers",
                 "test_positions.py::test_the_planted_pointer_is_found_and_no_other_pair"),
        equation("smeared keys, convolutions: W_QK(t, u), one matrix a pair of taps", "weights.blocks:Head.QK",
                 "test_taps.py::test_circuits_through_every_tap_are_the_oracles",
                 "test_taps.py::test_one_layer_of_smeared_keys_is_an_induction_head_and_every_reading_says_so"),
    )),
    Section("Function of Induction Heads", (
        equation("attention to what followed earlier copies, of 1", "behaviour.attention:prefix_matching",
                 "test_behaviour.py::test_a_perfect_induction_head_scores_one_and_rests_on_the_start_token",
                 "test_behaviour.py::test_prefix_matching_one_off_scores_nothing"),
        equation("what the OV circuit adds to the attended token", "behaviour.induction:copying_on_sequence",
                 "test_behaviour.py::test_copying_on_a_sequence_is_its_definition_position_by_position"),
        equation("loss of the 500th token less that of the 50th", "behaviour.losses:in_context_score",
                 "test_behaviour.py::test_the_in_context_score_compares_the_500th_token_with_the_50th"),
    )),
    Section("Checking the Mechanistic Theory", (
        equation("Σλ / Σ|λ| of W_Eᵀ W_QK^{h₂} W_OV^{h₁} W_E", "circuits.spectra:pair_eigenvalues",
                 "test_circuits.py::test_matching_score_of_a_pair_is_that_of_the_whole_table"),
    )),
    Section("Term Importance Analysis", (
        equation("loss of all terms up to order n", "paths.importance:order_losses",
                 "test_importance.py::test_losses_by_order_are_those_of_the_terms_up_to_it"),
        equation("n + 1 passes, replaced by one that carries an axis of orders (ours)", "runs.graded:graded_streams",
                 "test_paths.py::test_the_graded_pass_equals_the_n_plus_one_passes"),
    )),
    Section("Virtual Attention Heads", (
        equation("(A^{h₂} A^{h₁}) ⊗ (W_OV^{h₂} W_OV^{h₁})", "paths.virtual:virtual_head",
                 "test_virtual.py::test_a_virtual_head_is_the_product_of_two",
                 "test_virtual.py::test_its_pattern_without_norms_is_the_product_of_patterns"),
    )),
    Section("Where Does This Leave Us?", (
        equation("what paths from embeddings alone carry where MLPs are sources", "study.carried:carried",
                 "test_carried.py::test_numbers_are_those_of_the_enumerated_terms"),
    )),
    Section("Handling Layer Normalization", (
        equation("gain, centring and bias in the matrices beside them, exactly", "weights.weights:Weights.fold",
                 "test_weights.py::test_folding_keeps_logits_and_patterns"),
        equation("1/σ at every position and norm, recorded (ours; the paper leaves it out)", "weights.norms:Norm.scale",
                 "test_paths.py::test_the_final_norms_scale_at_every_layer_does_not_sum_to_the_logits"),
    )),
    Section("Working with Low-Rank Matrices", (
        equation("A B without forming it", "lowrank:LowRank",
                 "test_lowrank.py::test_dense_is_the_product_of_the_factors"),
        equation("‖A B‖² = tr(AᵀA · B Bᵀ)", "lowrank:LowRank.norm", "test_lowrank.py::test_norm_is_frobenius",
                 "test_lowrank.py::test_a_cyclic_permutation_keeps_the_trace_and_not_the_norm"),
        equation("singular values from the triangular factors of both sides", "lowrank:LowRank.svd",
                 "test_lowrank.py::test_svd_rebuilds_the_matrix_from_orthonormal_vectors"),
    )),
)  # fmt: skip

START = f"""# Equations

Every section of “{PAPER}” with its formulas: where each is computed, and the tests that hold it, in float64, against
slow independent oracles. Generated by `docs/equations.py` from docstrings and the catalogue. “Ours” is what the paper
does not have. Columns are vectors, as in the paper: `W_U W_O W_V W_E` is read from right to left.

"""


def page() -> str:
    """The whole page."""
    return START + "\n".join(_section(section) for section in SECTIONS) + "\n" + SLIPS.read_text(encoding="utf-8")


def _section(section: Section) -> str:
    rows = [f"| {_cell(one.formula)} | {_function(one)} | {_tests(one.tests)} |" for one in section.equations]
    lines = [f"## {section.title}", "", "| formula | function | tests |", "|---|---|---|", *rows, ""]
    if section.note:
        lines += [section.note, ""]
    if asked := [reading.name for reading in READINGS if section.title in reading.section.split("; ")]:
        lines += ["Readings: " + ", ".join(f"[`{name}`](readings.md#{name})" for name in asked) + ".", ""]
    return "\n".join(lines)


def _cell(formula: str) -> str:
    return formula.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*")


def _function(one: Equation) -> str:
    module, _, name = one.place.partition(":")
    return f"`pathsum.{module}.{name}`: {_escaped(first_sentence(one.place))}"


def _tests(tests: tuple[str, ...]) -> str:
    return "<br>".join(f"`{name}`" for name in tests)


def _escaped(text: str) -> str:
    """For a cell of a table; a bar in code would need an escape that some readers show."""
    return text.replace("|", "∣")


def first_sentence(place: str) -> str:
    """Of the docstring of `module:name`."""
    doc = inspect.getdoc(found(place)) or ""
    return re.split(r"(?<=[.!])\s|\n\n", doc.replace("\n", " ", 1) if "\n\n" not in doc[:200] else doc)[0].strip()


def found(place: str) -> Any:
    """What stands at `module:name`."""
    module, _, name = place.partition(":")
    value: Any = importlib.import_module(f"pathsum.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


def named_tests() -> Iterator[str]:
    """Every test on the page."""
    for section in SECTIONS:
        for one in section.equations:
            yield from one.tests


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
