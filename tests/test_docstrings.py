"""Every public name says what it is, its shapes, units and errors and where it is from, and shows a call that runs."""

import dataclasses
import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch

import pathsum
from pathsum.report.shown import Shown
from pathsum.study.catalogue import BY_NAME, PAPER
from pathsum.study.examples import EXAMPLES

ROOT = Path(__file__).parent.parent
PROMPT = "Mr Dursley was proud. Mr D"
SECTIONS = {*re.findall(r"^## (.+)$", (ROOT / "docs" / "equations.md").read_text(encoding="utf-8"), re.M)}
"""Of the paper, by their titles."""
NO_TENSORS = ("Attention", "Model", "PathsumError", "Result", "Spec", "errors")
NO_UNITS = ("Attention", "Family", "LowRank", "Model", "PathsumError", "errors", "open", "save", "take", "toys")
"""Facts, errors, and weights, which have none."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", pathsum.__all__)
def test_a_public_name_says_what_there_is_to_know(name):
    assert lacking(name, documentation(name)) == []


def test_what_a_docstring_lacks_is_noticed():
    full = "The logit `[pos]`, in nats. Raises `TextError`. Not in the paper.\n\n>>> 1\n1\n"
    assert lacking("logit", full) == []
    for part in ("`[pos]`", "nats", "Raises `TextError`", "Not in the paper", ">>> 1\n1\n"):
        assert len(lacking("logit", full.replace(part, ""))) == 1, part
    elsewhere = full.replace("Not in the paper.", "Paper: “The Path\nExpansion Trick; Nowhere”.")
    assert lacking("logit", elsewhere) == ["“Nowhere” among the paper's sections"]


@pytest.mark.parametrize("name", pathsum.__all__)
def test_the_worked_call_of_a_public_name_prints_what_it_says(name, place):
    assert run_calls(name, documentation(name), {"pathsum": pathsum}) > 0


def test_a_worked_call_that_prints_something_else_fails():
    with pytest.raises(pytest.fail.Exception, match="Expected:\n    2"):
        run_calls("wrong", ">>> 1\n2\n", {})


def test_all_that_is_got_from_public_names_is_explained_member_by_member(place):
    silent = [one.__name__ for one in classes() if not one.__doc__ or one.__doc__.startswith(f"{one.__name__}(")]
    silent += [f"{one.__name__}.{name}" for one in classes() for name, member in members(one) if not member.__doc__]
    assert not silent
    assert {"Model", "Weights", "Head", "Expansion", "Readout", "ScoreExpansion", "Picture"} <= {
        one.__name__ for one in classes()
    }


@pytest.mark.parametrize("one", ["Expansion", "Path", "ScoreExpansion"])
def test_the_worked_calls_of_methods_print_what_they_say(one, place):
    (kind,) = [each for each in classes() if each.__name__ == one]
    known = {"pathsum": pathsum, "torch": torch, "Path": kind, **shared()}
    documented = [(one, kind), *((f"{one}.{name}", member) for name, member in members(kind))]
    assert sum(run_calls(name, inspect.getdoc(each) or "", dict(known)) for name, each in documented) > 0


def test_methods_with_worked_calls_are_all_run():
    with_calls = {
        one.__name__ for one in classes() for _, each in [("", one), *members(one)] if ">>>" in f"{each.__doc__}"
    }
    assert with_calls - set(pathsum.__all__) == {"Expansion", "Path", "ScoreExpansion"}


def test_every_reading_has_its_example():
    assert set(EXAMPLES) == set(BY_NAME)
    for name, text in EXAMPLES.items():
        assert f"pathsum.{name}(" in text and documentation(name).endswith(text.rstrip()), name
        assert all(call.want.count("\n") <= 1 for call in calls(text)), f"{name}: the page has room for one line"


# ---- what is asked of a docstring ----


def lacking(name: str, text: str) -> list[str]:
    """The parts that it has not."""
    shape = r"`[^`\n]*\[[\w*, ()]*\w\][^`\n]*`|# \[\w[\w, ]*\]|Columns|columns"
    wanted = {
        "a worked call that prints": any(call.want for call in calls(text)),
        "errors": re.search(r"[Rr]aises?d?\s+`\w+`|`\w+` is raised|error", text),
        "shapes or columns": re.search(shape, text) or name in NO_TENSORS,
        "units": re.search(r"\bnats\b|\bradians\b|\bcounts?\b|plain number|unit", text) or name in NO_UNITS,
        "the paper's section": re.search(r"Paper\b.*: ?|Not\s+in\s+the\s+paper", text),
    }
    _, _, cited = text.partition("Paper")
    named = [" ".join(each.split()) for each in re.findall(r"“([^”]+)”", cited.split("\n\n")[0])]
    unknown = {part for each in named for part in each.split("; ")} - SECTIONS - {PAPER}
    return [part for part, there in wanted.items() if not there] + [
        f"“{each}” among the paper's sections" for each in sorted(unknown)
    ]


def documentation(name: str) -> str:
    return inspect.cleandoc(getattr(pathsum, name).__doc__)


def calls(text: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(text)


def run_calls(name: str, text: str, known: dict[str, Any]) -> int:
    """Runs the worked calls, and says how many there were."""
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    if result.failed:
        pytest.fail("".join(said))
    return result.attempted


@pytest.fixture
def place(tmp_path, monkeypatch) -> None:
    """An empty folder but for the checkpoints that the repository has."""
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    monkeypatch.chdir(tmp_path)


@cache
def shared() -> dict[str, Any]:
    """What the worked calls of methods speak of."""
    model = pathsum.open("two-layer-small")
    return {"model": model, "run": pathsum.run(model, PROMPT)}


# ---- what there is to be explained ----


@cache
def classes() -> tuple[type, ...]:
    """All of ours that exported names are or return, and that their public members are or return in turn."""
    found: list[type] = []
    exported = [getattr(pathsum, name) for name in pathsum.__all__]
    left = [Shown, *(one for each in exported for one in ([each] if inspect.isclass(each) else returned(each)))]
    while left:
        one = left.pop()
        if one in found or not one.__module__.startswith("pathsum.") or one.__name__.startswith("_"):
            continue
        found.append(one)
        fields = get_type_hints(one).items() if dataclasses.is_dataclass(one) else ()
        left += [kind for name, hint in fields if not name.startswith("_") for kind in kinds(hint)]
        left += [kind for _, member in members(one) for kind in returned(member)]
    return tuple(found)


def members(one: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of the class's own, as functions."""
    for name, member in vars(one).items():
        inside = {property: "fget", cached_property: "func", classmethod: "__func__", staticmethod: "__func__"}
        function = getattr(member, inside.get(type(member), ""), member)
        if inspect.isfunction(function) and not name.startswith("_"):
            yield name, function


def returned(function: Any) -> Iterator[type]:
    yield from kinds(get_type_hints(function).get("return") if inspect.isfunction(function) else None)


def kinds(hint: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if inspect.isclass(hint):
        yield hint
    for inner in get_args(hint):
        yield from kinds(inner)
