"""What the package exports, and that importing it is light."""

import ast
import contextlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest

import pathsum
from pathsum.errors import NotApplicable
from pathsum.study.catalogue import BY_NAME, READINGS
from pathsum.study.reading import SHARED
from pathsum.study.subject import Subject

EXPORTED = [
    "Attention", "Family", "LowRank", "Model", "PathsumError", "Result", "Rotary", "Run", "Spec", "attention",
    "bigram_pairs", "bigrams", "bugs", "carried", "composition", "cross", "describe", "eigenvalues", "entries",
    "errors", "expand", "expand_scores", "importance", "importance_heads", "importance_layers", "importance_paths",
    "importance_sources", "in_context", "induction", "log_probability", "logit", "logit_difference",
    "loss_by_position", "matching", "open", "pointer", "positional", "prompt_expansion", "prompt_lens",
    "prompt_paths", "prompt_scores", "prompt_table", "reconstruction", "repeats", "run", "run_claims", "save",
    "series_table", "spectra", "strongest_paths", "sweep", "take", "taps", "toys", "trigrams", "verify", "virtual",
    "virtual_head",
]  # fmt: skip


def test_the_exported_names_are_these():
    assert pathsum.__all__ == EXPORTED
    assert all(getattr(pathsum, name) is not None for name in EXPORTED)
    assert dir(pathsum) == EXPORTED


def test_every_reading_of_the_catalogue_is_exported():
    assert set(BY_NAME) <= set(EXPORTED)


def test_editors_complete_what_is_exported():
    (block,) = [node for node in ast.parse(inspect.getsource(pathsum)).body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    imported = [alias.asname for statement in block.body for alias in statement.names]
    assert sorted([*imported, "errors", "toys"]) == EXPORTED


def test_importing_pathsum_loads_nothing_heavy():
    code = "import sys, pathsum; assert not {'torch', 'polars', 'altair', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


CORE = ("torch", "safetensors", "tokenizers", "polars", "altair", "typer", "rich")
ALSO = ("jaxtyping", "numpy")
"""jaxtyping states shapes in every signature; numpy carries arrays between torch and polars. Both are small."""


def _brought(names: Iterable[str]) -> set[str]:
    """These distributions and all that they require, without extras."""
    found, left = set(), list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(PackageNotFoundError):
            left += [re.match(r"[\w.-]+", one)[0] for one in requires(name) or () if "extra ==" not in one]
    return found


def test_the_core_imports_seven_libraries_and_what_they_bring():
    code = """
import sys, pathsum
model = pathsum.open("two-layer-small")
pathsum.expand(pathsum.run(model, "to be or not to be")).check()
pathsum.composition(model).frame, pathsum.spectra(model).frame
print(*{name.split(".")[0] for name in sys.modules})
"""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}  # it would load
    loaded = subprocess.check_output([sys.executable, "-c", code], env=plain, text=True).split()
    places = packages_distributions()
    used = {re.sub(r"[-_.]+", "-", one).lower() for name in loaded for one in places.get(name, [])}
    assert set(CORE) - {"typer"} <= used
    assert used - {"pathsum"} <= _brought([*CORE, *ALSO])


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pathsum.nothing


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name)
def test_every_reading_says_what_it_needs_where_it_is_from_and_what_its_columns_mean(reading):
    function = getattr(pathsum, reading.name)
    doc = inspect.getdoc(function)
    assert reading.section in doc and ", ".join(reading.needs) in doc and reading.invariance in doc
    assert all(f"{column.name}" in doc and column.meaning in doc for column in reading.columns)
    own = [name for name in inspect.signature(reading.function).parameters if name != "subject"]
    assert set(own) < set(inspect.signature(function).parameters)


class Watched(Subject):
    """A subject that notes which of its shared arguments are used."""

    def __getattribute__(self, name: str):
        if name in SHARED:
            self.__dict__.setdefault("used", set()).add(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name)
def test_a_reading_takes_what_its_numbers_depend_on_and_nothing_else(reading):
    model, text = pathsum.open("two-layer-small"), "One fish two fish red fish blue fish. " * 20
    subject = Watched(model, text, context=40, batch=1, block=16)
    subject.__dict__["used"] = set()
    with contextlib.suppress(NotApplicable):
        reading.function(subject)
    assert subject.__dict__["used"] <= {*reading.shared}
    for name in {*SHARED} - {*reading.shared}:
        with pytest.raises(TypeError, match=rf"{reading.name}\(\) takes no '{name}'; it takes "):
            getattr(pathsum, reading.name)(model, **{name: 1})


def test_public_functions_have_docstrings():
    for name in EXPORTED:
        assert inspect.getdoc(getattr(pathsum, name)), name
