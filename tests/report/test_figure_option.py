"""`--figure FILE`: every command that has a figure saves it."""

import xml.etree.ElementTree as ElementTree

import pytest

from pathsum.cli import main
from pathsum.report.figures import FIGURES

PROMPTED = {"expand": [], "lens": [], "paths": [], "scores": ["L1H1"]}
FAST = sorted({"attention", "bigram_pairs", "composition", "eigenvalues", "induction", "matching", "positional",
               "repeats", "spectra"})  # fmt: skip


def succeed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert not stopped.value.code


@pytest.mark.parametrize("name", [*FAST, *PROMPTED])
def test_a_command_saves_its_figure_and_prints_its_table(tmp_path, capsys, name):
    out = tmp_path / f"{name}.svg"
    arguments = [*PROMPTED[name], "the cat sat on the mat"] if name in PROMPTED else []
    arguments += ["--sequences", "1"] if name in ("attention", "bigram_pairs") else []
    succeed([name, "two-layer-small", *arguments, "--figure", str(out)])
    assert ElementTree.parse(out).getroot().tag.endswith("svg")
    assert name in FIGURES and capsys.readouterr().out


def test_json_is_all_that_is_printed_and_the_figure_is_saved_all_the_same(tmp_path, capsys):
    succeed(["repeats", "two-layer-small", "--json", "--figure", str(tmp_path / "repeats.png")])
    assert capsys.readouterr().out.startswith('{"manifest"')
    assert (tmp_path / "repeats.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "two-layer-small", "--figure", "x.svg"], "describe has no figure: its table says it all"),
        (["composition", "two-layer-small", "--figure", "x.gif"], "x.gif is none of .svg, .png, .pdf, .html"),
        (["composition", "one-layer", "--figure", "x.svg"], "x.svg is not written: composition of this model has"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 1 and message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
