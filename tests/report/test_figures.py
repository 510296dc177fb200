"""Every figure is a valid specification, and draws."""

import warnings

import polars as pl
import pytest
import vl_convert

from pathsum.report import figures
from pathsum.report.figures.style import PAGE, PRINT, theme
from pathsum.report.gallery import drawings
from pathsum.report.heads import head_table
from pathsum.report.page import page_spec
from pathsum.report.partners import composition_pairs


@pytest.fixture(scope="module")
def drawn(hostile, results):
    return {drawing.name: drawing for drawing in drawings(hostile, results)}


def values(specification: dict, part: dict) -> list[dict]:
    """The rows a part of a specification draws; Altair keeps them aside, by name."""
    return specification["datasets"][(part if "data" in part else specification)["data"]["name"]]


def svg(figure) -> str:
    return vl_convert.vegalite_to_svg(figure.to_dict(), vl_version="6.4")


def test_a_two_layer_model_has_every_figure(drawn):
    assert list(drawn) == ["eigenvalues", "spectra", "lags", "positional", "diagram", "effects", "corner", "induction",
                           "patterns", "repeats", "loss_by_position", "bigram_pairs", "importance", "importance_layers",
                           "importance_heads"]  # fmt: skip


def test_every_figure_is_valid_and_draws(drawn):
    for drawing in drawn.values():
        specification = drawing.figure.to_dict()
        assert specification["description"]
        assert svg(drawing.figure).startswith("<svg")


def test_the_composition_diagram_draws_without_a_warning_and_names_every_head(drawn, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = svg(drawn["diagram"].figure)
    assert "WARN" not in "".join(capfd.readouterr())
    for name in ("L0H0 · previous token", "L0H1", "L1H0", "L1H1 · induction", "layer 0", "layer 1"):
        assert f">{name}<" in picture


def test_the_diagram_of_a_deep_model_stays_on_the_page_and_names_the_heads_that_do_something():
    names = [f"L{layer}H{index}" for layer in range(30) for index in range(9)]
    known = {"previous_token": 0.1, "prefix_matching": 0.1, "copying_score": 0.1, "is_previous_token": False}
    heads = pl.DataFrame({"head": names}).with_columns(
        pl.col("head").str.extract(r"L(\d+)", 1).cast(pl.Int64).alias("layer"),
        pl.col("head").str.extract(r"H(\d+)", 1).cast(pl.Int64).alias("index"),
        pl.lit(None, pl.Int64).alias("lag"), (pl.col("head") == "L18H6").alias("is_induction_head"),
        *(pl.lit(value).alias(name) for name, value in known.items()),
    )  # fmt: skip
    numbers = {"score": 0.2, "baseline": 0.1, "ceiling": 0.5, "z": 20.0, "effect": 0.1}
    pairs = pl.DataFrame([{"kind": "V", "source": "L3H1", "destination": "L18H6", **numbers}])
    specification = figures.composition_diagram(pairs, heads).to_dict()
    assert specification["width"] < 1500
    texts = [part for part in specification["layer"] if part.get("encoding", {}).get("text", {}).get("field") == "head"]
    named = [row["head"] for part in texts for row in values(specification, part)]
    assert named == ["L18H6"]


def test_the_diagram_holds_both_signs_and_lets_the_reader_choose(drawn):
    specification = drawn["diagram"].figure.to_dict()
    effects = [edge["effect"] for edge in values(specification, specification["layer"][0])]
    assert min(effects) < 0 < max(effects)
    controls = {parameter["name"]: parameter for parameter in specification["params"] if "bind" in parameter}
    assert controls["composition_show"]["bind"]["options"] == ["above", "below"]
    assert controls["composition_threshold"]["bind"]["input"] == "range"
    assert controls["composition_kind"]["bind"]["options"] == ["all", "Q", "K", "V"]


def test_only_lines_at_or_above_the_threshold_are_drawn(drawn):
    specification = drawn["diagram"].figure.to_dict()
    sizes = [edge["size"] for edge in values(specification, specification["layer"][0]) if edge["effect"] > 0]
    for threshold in (0.0, sorted(sizes)[len(sizes) // 2], max(sizes) + 1):
        (slider,) = (each for each in specification["params"] if each["name"] == "composition_threshold")
        slider["value"] = threshold
        picture = vl_convert.vegalite_to_svg(specification, vl_version="6.4")
        assert picture.count('aria-roledescription="rule mark"') == sum(size >= threshold for size in sizes)


def test_hovering_shows_score_baseline_ceiling_z_and_effect(drawn):
    shown = [each["field"] for each in drawn["diagram"].figure.to_dict()["layer"][0]["encoding"]["tooltip"]]
    assert {"score", "baseline", "ceiling", "z", "effect"} <= set(shown)


def test_kinds_differ_in_dashes_and_signs_in_marks_not_in_colour_alone(drawn, results):
    encoding = drawn["diagram"].figure.to_dict()["layer"][0]["encoding"]
    assert encoding["strokeDash"]["field"] == "kind"
    sure = composition_pairs(results).with_columns(pl.lit(-20.0).alias("z"))
    assert ">−<" in svg(figures.composition_heat_map(sure))


def test_a_large_model_is_drawn_by_its_strongest_pairs(results):
    heads = [f"L{layer}H{index}" for layer in range(3) for index in range(30)]
    names = [(s, d) for s in heads for d in heads if s[1] < d[1]]
    effects = [((7 * place) % 1000 - 500) / 5000 for place in range(len(names))]
    columns = {"kind": "K", "source": [s for s, _ in names], "destination": [d for _, d in names], "effect": effects}
    pairs = pl.DataFrame(columns).with_columns(
        pl.lit(0.1).alias(name) for name in ("score", "baseline", "ceiling", "z")
    )
    shown, total = figures.pairs_shown(pairs)
    assert (shown, total) == (800, 2700)
    assert figures.composition_heat_map(pairs).to_dict()
    table = pl.DataFrame({"head": heads}).with_columns(
        pl.col("head").str.extract(r"^L(\d+)", 1).cast(pl.Int64).alias("layer"),
        pl.col("head").str.extract(r"H(\d+)$", 1).cast(pl.Int64).alias("index"),
        pl.lit(None, pl.Int64).alias("lag"),
        *(pl.lit(None, pl.Float64).alias(name) for name in ("previous_token", "prefix_matching", "copying_score")),
        *(pl.lit(None, pl.Boolean).alias(name) for name in ("is_previous_token", "is_induction_head")),
    )
    assert svg(figures.composition_diagram(pairs, table)).startswith("<svg")


def test_eigenvalue_panels_keep_directions_and_are_sorted_by_copying_score():
    eigenvalues = pl.DataFrame(
        {"head": ["L0H0", "L0H0", "L0H1"], "circuit": "OV", "real": [4.0, 0.0, -1.0], "imaginary": [0.0, 1.0, 0.0]}
    )
    heads = pl.DataFrame({"head": ["L0H0", "L0H1"], "copying_score": [0.8, -1.0]})
    specification = figures.eigenvalue_scatter(eigenvalues, heads).to_dict()
    points = [(row["x"], row["y"]) for row in values(specification, specification)]
    assert points == [(1.0, 0.0), (0.0, 0.5), (-1.0, 0.0)]
    assert specification["facet"]["sort"] == ["L0H0 · 0.80", "L0H1 · −1.00"]


def test_attention_shows_tokens_as_text_and_leaves_out_what_is_faint(drawn):
    specification = drawn["patterns"].figure.to_dict()
    tokens = next(each["value"] for each in specification["params"] if each["name"] == "attention_tokens")
    assert tokens[1] == "</script>" and tokens[5].startswith("<U+202E>right") and tokens[7] == "🦊"
    assert all(row["attention"] >= 0.01 for row in values(specification, specification))
    assert "&lt;/script>" in svg(drawn["patterns"].figure) or "&lt;/script&gt;" in svg(drawn["patterns"].figure)


def test_undefined_numbers_are_null_in_a_figure():
    frame = pl.DataFrame({"order": [0, 1], "loss": [1.0, 2.0], "gain": [0.5, float("nan")]})
    specification = figures.order_bars(frame, {0: "direct path", 1: "single heads"}).to_dict()
    bars = specification["hconcat"][0]["layer"][0]
    assert [row["value"] for row in values(specification, bars)] == [0.5, None]


def test_on_the_page_colours_are_the_page_s_own(drawn):
    assert "config" not in page_spec(drawn["diagram"])
    config = drawn["diagram"].figure.to_dict()["config"]
    assert config["range"] == theme(PRINT)["range"] and config["style"] == theme(PRINT)["style"]
    assert theme(PAGE)["range"]["category"][0] == "var(--blue)"


def test_files_have_fonts_of_one_width_wherever_they_are_opened(drawn):
    assert theme(PRINT)["font"].startswith("Arial, 'Liberation Sans'")
    assert "system-ui" not in svg(drawn["diagram"].figure)


def test_models_of_any_depth_draw_what_they_have(plain):
    subject, found = plain
    names = [drawing.name for drawing in drawings(subject, found) if svg(drawing.figure)]
    depth = subject.model.spec.n_layers
    assert ("diagram" in names) == (depth > 1) and ("lags" in names) == (depth > 0) and "importance" in names
    assert len(head_table(found)) == depth * subject.model.spec.n_heads
