"""The figure of every reading: it draws, says what it must, and tells nothing by colour alone."""

import json
import re

import polars as pl
import pytest
import vl_convert

from pathsum.errors import StudyError
from pathsum.report import figures
from pathsum.report.figures.of import FIGURES, caption_of, figure_of
from pathsum.report.figures.panels import Measure, panels
from pathsum.report.heads import head_table
from pathsum.study.catalogue import BY_NAME
from pathsum.study.cross import prompt_table
from pathsum.study.lens import prompt_lens
from pathsum.study.prompt import prompt_expansion
from pathsum.study.result import Result, read_one

READ = {"describe", "reconstruction", "bigrams", "in_context", "entries", "taps", "trigrams", "bugs"}
"""Tables that are better read than looked at."""
ASKED = {"expand", "lens", "paths", "scores"}


@pytest.fixture(scope="module")
def every(hostile, results) -> dict[str, Result]:
    """All readings, those that are in no report too."""
    more = {name: read_one(name, hostile) for name in BY_NAME if name not in results and name != "pointer"}
    return {**results, **more}


def svg(figure) -> str:
    return vl_convert.vegalite_to_svg(figure.to_dict(), vl_version="6.4")


def words(figure) -> list[str]:
    """The texts of a drawn figure."""
    return [re.sub(r"<[^>]*>", "", found) for found in re.findall(r"<text[^>]*>(.*?)</text>", svg(figure), re.S)]


def encodings(part) -> list[dict]:
    """All encodings anywhere in a specification."""
    if isinstance(part, list):
        return [found for each in part for found in encodings(each)]
    if not isinstance(part, dict):
        return []
    own = [part["encoding"]] if "encoding" in part else []
    return own + [found for each in part.values() for found in encodings(each)]


def rows_of(figure) -> list[dict]:
    return [row for rows in figure.to_dict()["datasets"].values() for row in rows]


def test_every_reading_has_a_figure_or_is_better_read():
    assert set(BY_NAME) - READ == set(FIGURES) - ASKED


def test_every_figure_draws_has_a_description_and_stays_small(every):
    heads = head_table(every)
    for name in set(FIGURES) & set(every) - {"pointer"}:
        figure = figure_of(every[name], heads)
        assert figure is not None, name
        specification = figure.to_dict()
        assert specification["description"] and svg(figure).startswith("<svg"), name
        assert caption_of(every[name])


def test_without_other_readings_each_draws_all_the_same(every):
    for name in ("composition", "eigenvalues", "spectra", "induction"):
        assert svg(figure_of(every[name])).startswith("<svg")
    assert "L1H1 · 1.00" in words(figure_of(every["eigenvalues"]))


def test_what_has_nothing_to_draw_has_no_figure(every):
    composition = every["composition"]
    empty = Result(composition.reading, composition.frame.head(0), composition.manifest)
    unknown = composition.frame.with_columns(pl.lit(None, pl.Float64).alias("effect"))
    assert figure_of(empty) is None
    assert figure_of(Result(composition.reading, unknown, composition.manifest)) is None
    assert figure_of(every["describe"]) is None and caption_of(every["describe"]) == ""


@pytest.mark.parametrize("name", sorted(FIGURES.keys() - ASKED - {"pointer"}))
def test_what_has_a_colour_has_a_shape_a_dash_or_a_mark_too(every, name):
    found = encodings(figure_of(every[name], head_table(every)).to_dict())
    coloured, told = (
        {each[channel].get("field") for each in found for channel in channels if channel in each}
        for channels in (("color",), ("shape", "strokeDash", "text", "x", "y"))
    )
    assert coloured <= told


def test_colours_are_found_where_there_are_some(every):
    found = [encodings(figure_of(every[name]).to_dict()) for name in ("composition", "spectra", "matching")]
    assert all(any("color" in each for each in one) for one in found)


def test_figures_hold_no_colours_of_their_own(every):
    for name in set(FIGURES) & set(every) - {"pointer"}:
        specification = figure_of(every[name], head_table(every)).to_dict()
        specification.pop("config")
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", json.dumps(specification, ensure_ascii=True)), name


def test_several_distances_are_drawn_by_the_one_of_the_strongest_effect(every):
    composition = every["composition"]
    near, far = (composition.frame.with_columns(pl.col("effect") + more, pl.lit(d).alias("delta"))
                 for more, d in ((0.0, 0.0), (1.0, 3.0)))  # fmt: skip
    figure = figure_of(Result(composition.reading, pl.concat([near, far]), composition.manifest))
    effects = [row["effect"] for row in rows_of(figure) if "effect" in row]
    assert len(effects) == len(composition.frame) and min(effects) > 0.5


def test_all_writers_and_readers_are_a_heat_map_in_the_order_of_the_model(hostile):
    figure = figure_of(read_one("composition", hostile, writers="all", readers="all"))
    shown = words(figure)
    assert {"embed", "unembed", "Q-composition"} <= set(shown)
    assert figure.to_dict()["spec"]["layer"][0]["encoding"]["x"]["sort"][:2] == ["embed", "L0H0"]


# ---- bars and their errors ----


def test_bars_have_two_standard_errors_and_a_threshold():
    frame = pl.DataFrame({"name": ["a", "b"], "cost": [1.0, None], "cost_error": [0.25, None]})
    figure = panels(frame, "name", [Measure("cost", "cost", threshold=0.5)])
    ends = [(row["low"], row["high"]) for row in rows_of(figure) if "low" in row]
    assert ends == [(0.5, 1.5), (None, None)]
    assert {"threshold": 0.5} in rows_of(figure)
    assert "+1.00" in words(figure) and "b" in words(figure)


def test_measures_of_one_unit_share_a_scale_and_others_do_not():
    frame = pl.DataFrame({"name": ["a"], "x": [1.0], "y": [3.0], "z": [-0.1]})
    figure = panels(frame, "name", [Measure("x", "x"), Measure("y", "y"), Measure("z", "z", "share")])
    domains = [chart["layer"][0]["encoding"]["x"]["scale"]["domain"] for chart in figure.to_dict()["hconcat"]]
    assert domains[0] == domains[1] and domains[0][1] > 3 and domains[2][0] < -0.1 and domains[2][1] < 1


def test_a_column_without_a_single_number_is_still_drawn():
    frame = pl.DataFrame({"name": ["a"], "x": [None]}, schema={"name": pl.String, "x": pl.Float64})
    assert svg(panels(frame, "name", [Measure("x", "x")])).startswith("<svg")


@pytest.mark.parametrize("name", ["importance", "importance_layers", "importance_heads", "importance_paths", "virtual"])
def test_whiskers_are_drawn_of_what_terms_are_worth(every, name):
    result = every[name]
    errors = [column for column in result.frame.columns if column.endswith("_error")]
    known = result.frame.with_columns(pl.lit(0.125).alias(column) for column in errors)
    figure = figure_of(Result(result.reading, known, result.manifest))
    whiskers = [row for row in rows_of(figure) if row.get("error") == 0.125 and row["value"] is not None]
    assert whiskers and all(row["high"] - row["low"] == pytest.approx(0.5, abs=1e-4) for row in whiskers)
    assert any(mark.get("style") == "whisker" for mark in _marks(figure.to_dict()))
    ends = [(each["x"]["field"], each["x2"]["field"]) for each in encodings(figure.to_dict()) if "x2" in each]
    assert set(ends) == {("low", "high")}


def _marks(part) -> list[dict]:
    if isinstance(part, list):
        return [found for each in part for found in _marks(each)]
    if not isinstance(part, dict):
        return []
    own = [part["mark"]] if isinstance(part.get("mark"), dict) else []
    return own + [found for each in part.values() for found in _marks(each)]


def test_the_last_orders_of_a_deep_model_that_save_nothing_are_one_bar():
    gains = [1.0, 4.0, 0.5, 1e-4, 2e-4, -1e-4]
    frame = pl.DataFrame({"order": range(6), "gain": gains, "gain_error": [0.1] * 6})
    bars = {
        row["name"]: row["value"] for row in rows_of(figures.order_bars(frame, {n: f"order {n}" for n in range(6)}))
    }
    assert bars == {"order 0": 1.0, "order 1": 4.0, "order 2": 0.5, "orders 3 to 5": pytest.approx(2e-4)}
    assert len(rows_of(figures.order_bars(frame.head(4), {n: f"order {n}" for n in range(4)}))) == 4


# ---- heads ----


def test_heads_whose_scores_disagree_are_diamonds_with_their_names():
    scores = {"head": ["L0H0", "L0H1", "L0H2"], "copying_score": [0.9, 0.9, -0.5], "own_token_rank": [0.0, 0.6, 0.5]}
    frame = pl.DataFrame({**scores, "own_token_rank_error": [0.0, 0.01, 0.0]})
    figure = figures.own_token_ranks(frame, copying=0.5, rank=0.25)
    roles = {row["head"]: row["role"] for row in rows_of(figure) if "role" in row}
    assert roles == {"L0H0": "scores agree", "L0H1": "scores disagree", "L0H2": "scores agree"}
    assert "L0H1" in words(figure) and "L0H0" not in words(figure)


def test_names_beside_points_do_not_cover_each_other():
    heads = [f"L0H{index}" for index in range(6)]
    frame = pl.DataFrame({"head": heads, "copying_score": [0.9] * 6, "own_token_rank": [0.5] * 6})
    named = {row["name"]: row["y"] for row in rows_of(figures.own_token_ranks(frame, 0.5, 0.25)) if "name" in row}
    places = [*named.values()]
    assert len(places) == 6 and min(abs(a - b) for a in places for b in places if a is not b) > 0.01


def test_the_planted_induction_head_comes_first_and_says_so(every):
    shown = words(figure_of(every["induction"]))
    assert "L1H1 · induction" in shown and "prefix matching" in shown
    sort = figure_of(every["induction"]).to_dict()["hconcat"][0]["layer"][0]["encoding"]["y"]["sort"]
    assert sort[0] == "L1H1 · induction" and len(sort) == 4


def test_a_large_model_shows_the_48_heads_with_the_most_prefix_matching():
    numbers = {name: [place / 100 for place in range(100)] for name in ("prefix_matching", "copying", "causal_effect")}
    frame = pl.DataFrame({"head": [f"L{place}H0" for place in range(100)], **numbers, "is_induction_head": False})
    figure = figures.induction_tests(frame, {"prefix_matching": 0.3, "copying": 0.5, "causal_effect": 0.1})
    assert figure.to_dict()["hconcat"][0]["layer"][0]["encoding"]["y"]["sort"][0] == "L99H0"
    assert len({row["name"] for row in rows_of(figure) if "name" in row}) == 48


def test_positional_circuits_are_a_panel_a_head_on_one_scale(every):
    specification = figure_of(every["positional"]).to_dict()
    assert specification["facet"]["sort"] == ["L0H0", "L0H1", "L1H0", "L1H1"]


# ---- text ----


def test_loss_by_position_marks_the_two_tokens_compared_and_their_difference():
    losses = pl.DataFrame({"token": [2, 3, 4], "loss": [5.0, 4.0, 3.5], "compared": ["early", "", "late"]})
    shown = words(figures.loss_by_position(losses))
    assert "token 2: 5.00" in shown and "token 4: 3.50" in shown and "in-context score −1.50 nats" in shown


def test_hostile_bigrams_are_text(hostile, every):
    figure = figure_of(every["bigram_pairs"])
    drawn = svg(figure)
    assert "<script" not in drawn and "\u202e" not in drawn
    assert any("<U+202E>" in row.get("bigram", "") for row in rows_of(figure))
    assert max(len(row["bigram"]) for row in rows_of(figure) if "bigram" in row) <= 25


def test_composition_over_training_names_the_pairs_that_are_strongest_at_the_end():
    def table(strong: float, weak: float) -> pl.DataFrame:
        rows = [("K", "L0H0", "L1H1", strong), ("V", "L0H1", "L1H0", weak), ("Q", "L0H1", "L1H1", None)]
        return pl.DataFrame(rows, ["kind", "source", "destination", "effect"], orient="row")

    figure = figures.composition_over_training({0: table(0.0, 0.1), 1000: table(0.02, 0.0), 4000: table(0.2, -0.1)})
    shown = words(figure)
    assert "K L0H0 → L1H1" in shown and "V L0H1 → L1H0" not in shown and "1k" in shown
    assert {row["tokens"] for row in rows_of(figure) if "tokens" in row} == {0, 1000, 4000}
    with pytest.raises(StudyError, match="two checkpoints or more, got 1"):
        figures.composition_over_training({0: table(0.0, 0.1)})


# ---- one prompt ----


@pytest.fixture(scope="module")
def prompted(hostile) -> dict[str, Result]:
    ids = [0, 5, 9, 0, 5]
    return {
        "lens": prompt_lens(hostile.model, ids),
        "expand": prompt_expansion(hostile.model, ids),
        "one axis": prompt_table(hostile.model, ids, ["order"]),
        "two axes": prompt_table(hostile.model, ids, ["head", "position"]),
    }


def test_prompts_are_drawn_with_their_tokens_as_text(prompted):
    for name, result in prompted.items():
        drawn = svg(figure_of(result))
        assert drawn.startswith("<svg") and "<script" not in drawn and "\u202e" not in drawn, name
    assert "by order" in words(figure_of(prompted["expand"]))


def test_the_lens_shows_both_scales_and_the_first_choice_of_every_step(prompted):
    figure = figure_of(prompted["lens"])
    scales = {row["scale"] for row in rows_of(figure)}
    assert scales == {"frozen", "recomputed"} and {"frozen", "recomputed"} <= set(words(figure))
    assert "before L1" in words(figure) and "all" in words(figure)


def test_two_axes_are_a_panel_for_each_of_the_largest_cells(prompted):
    figure = figure_of(prompted["two axes"]).to_dict()
    titles = [chart["title"] for chart in figure["hconcat"]]
    assert titles[-1] == "position others" and all(title.startswith("position ") for title in titles)
    total = sum(row["value"] for row in rows_of(figure_of(prompted["two axes"])) if row.get("value"))
    assert total == pytest.approx(prompted["two axes"].manifest["prompt"]["linear"], rel=1e-2)
