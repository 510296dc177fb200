"""Every block of code and every command of the documentation runs, or says by a rule below why it is only parsed."""

import contextlib
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from docs_blocks import LEFT_OUT, PAGES, ROOT, Block, Command, blocks, commands, difference, spans
from pathsum.cli import main
from pathsum.cli.app import build_app
from pathsum.study.subject import standard_library_text
from sparse_files import sparse_checkpoint

ELSEWHERE = {
    "hf:": "needs the network",
    "tcp:": "needs a cluster",
    "SmolLM2": "needs a package of 93 MB (`make real`)",
    "/models/": "stands for a place",
    "path/to/": "stands for a place",
    LEFT_OUT: "is given in part",
}
"""Commands with such a word are parsed, not run; so are those with a word in capitals, which stands for another."""
NOT_RUN = {
    "claims": "trains for minutes",
    "explore": "serves until it is stopped",
    "bugs": "takes most of a minute",
    "composition big-model": "takes minutes",
    "sweep models --processes": "takes ten seconds to start processes; tests of sweeps do",
}
NOT_YET = {"sizes": "a how-to adds it, and so does a test"}
INSTEAD = {"train": ["--dry-run"]}
"""What is added to a command that would take long."""
SHORTER = {"steps=1500": "steps=2", "python@5MB": "python@1MB"}
"""The same in Python."""
ONLY_COMPILED = {"found = pathsum.prompt_paths(model, prompt": "is of SmolLM2"}
"""How such a block begins."""
LIBRARY = "7610836e0bf1eb8b41ef89136fb999df298e4956b7ba7917f01a705a9405d554"
"""sha256 of the default text under the Python that pages were made with; under another, numbers differ."""
SHIPPED = ROOT / "checkpoints" / "two-layer-small"
NUMBERS = hashlib.sha256(standard_library_text().encode()).hexdigest() == LIBRARY

named = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with what pages speak of: `checkpoints`, a run that was trained, notes, a checkpoint of 70B of zeros."""
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    trained(tmp_path / "my-model")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one.md").write_text("The cat sat on the mat. The cat sat on it.\n" * 400)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def trained(folder: Path) -> None:
    """A run as `pathsum train` leaves it, with one checkpoint of the many: the one that ships."""
    if folder.exists():
        return
    folder.mkdir()
    last, every = SHIPPED / "step-001500", ("tokenizer.json", "training.json", "step-000512")
    for file in (last / "config.json", last / "model.safetensors", *(SHIPPED / name for name in every)):
        (folder / file.name).symlink_to(file)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a 1.00 b", "a  1.01\nb", True), ("a 1.00 b", "a 1.10 b", False), ("L0H1", "L0H2", False),
        ("a 1.00", "a 1.00 b", False), ("a …", "a 1.00 b", True), ("… b", "a b c", False), ("… b …", "a b c", True),
        ("a … c … d", "a b d c", False), ("2e-15", "6e-15", True), ("2e-15", "2e-5", False), ("", "a", False),
    ],
)  # fmt: skip
def test_what_is_shown_is_compared_with_what_is_printed(shown, printed, same):
    assert (difference(shown, printed) == "") is same
    assert not same or difference(shown, printed, numbers=False) == ""


@named
def test_every_block_says_what_it_is_and_none_without_a_command_is_a_command(page):
    for block in blocks(page):
        where = f"{page.name}:{block.line}: {block.label!r}"
        assert block.label in ("python", "console", "sh", "text"), where
        if block.label == "text":
            assert not re.search(r"^(\$ |pathsum |make )", block.text, re.M), f"{page.name}:{block.line}"


@named
def test_every_command_of_a_page_is_one_with_its_options(page):
    for block in blocks(page):
        for command in commands(block) if block.label in ("console", "sh") else ():
            if wrong := misread(command.words):
                pytest.fail(f"{page.name}:{command.line}: {' '.join(command.words)}: {wrong}")
    for span in spans(page):
        if wrong := misread(tuple(shlex.split(span)), whole=False):
            pytest.fail(f"{page.name}: `{span}`: {wrong}")


@named
def test_a_page_runs_from_top_to_bottom_and_prints_what_it_shows(page, place):
    if "big-model" in page.read_text(encoding="utf-8"):
        sparse_checkpoint(place / "big-model", n_layers=80, d=2048, d_mlp=140_000)
    names = {"__name__": page.stem}
    for block in blocks(page):
        if block.label == "python":
            run_python(page, block, names)
        elif block.label in ("console", "sh"):
            for command in commands(block):
                run_command(page, command)


def test_the_reading_that_a_how_to_adds_is_a_command(tmp_path, place):
    page = ROOT / "docs" / "how-to" / "add-a-reading.md"
    function, entry, options, *_ = [block.text for block in blocks(page) if block.label == "python"]
    shutil.copytree(ROOT / "src" / "pathsum", tmp_path / "copy" / "pathsum")
    study = tmp_path / "copy" / "pathsum" / "study"
    (study / "sizes.py").write_text(function, encoding="utf-8")
    catalogue, before = (study / "catalogue.py").read_text(encoding="utf-8"), "BY_NAME: dict"
    added = f"{entry}\nREADINGS = (*READINGS, SIZES)\n{before}"
    (study / "catalogue.py").write_text(catalogue.replace(before, added), encoding="utf-8")
    with (study / "options.py").open("a", encoding="utf-8") as file:
        file.write(f'{options}\nOPTIONS["sizes"] = HELP\n')
    (command,) = [command for block in blocks(page) for command in commands(block) if block.label == "console"]
    code = "from pathsum.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command.words[1:]], capture_output=True, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "copy"), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not difference(command.shown, done.stdout, NUMBERS)


def run_python(page: Path, block: Block, names: dict) -> None:
    text = block.text
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    code = compile("\n" * block.line + text, str(page), "exec")
    if text.startswith(tuple(ONLY_COMPILED)):
        return
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    shown = block.below or "\n".join(re.findall(r"^ *print\(.*\)  # (.*)$", text, re.M))
    wrong = difference(shown, printed.getvalue(), NUMBERS)
    assert not wrong, f"{page.name}:{block.line}: {wrong}"


def run_command(page: Path, command: Command) -> None:
    if command.words[0] != "pathsum" or why_not(command.words):
        return
    arguments = [*command.words[1:], *INSTEAD.get(command.words[1], [])]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as said:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
    where = f"{page.name}:{command.line}: {' '.join(command.words)}"
    assert stopped.value.code == 0, f"{where}: {said.getvalue()}"
    if command.words[1] == "train":
        trained(Path(command.words[command.words.index("--out") + 1]))
    if command.shown and command.words[1] not in INSTEAD:
        wrong = difference(command.shown, printed.getvalue(), NUMBERS)
        assert not wrong, f"{where}: {wrong}"


def why_not(words: tuple[str, ...]) -> str:
    """Why a command is not run; "" for one that is."""
    if any(re.fullmatch(r"[A-Z]{2,}", word) for word in words):
        return "has a word that stands for others"
    typed = " ".join(words[1:])
    found = [why for part, why in ELSEWHERE.items() if part in typed]
    found += [why for start, why in (NOT_RUN | NOT_YET).items() if typed.startswith(start)]
    return next(iter(found), "")


def misread(words: tuple[str, ...], whole: bool = True) -> str:
    """What is wrong with a command's name, options or their values; `whole` False: arguments may be missing."""
    if words[0] == "make":
        targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        return next((f"no target {word}" for word in words[1:] if "=" not in word and word not in targets), "")
    if words[0] != "pathsum" or words[1].startswith("--") or words[1].isupper() or words[1] in NOT_YET:
        return ""
    group = typer.main.get_command(build_app(words[1]))
    if words[1] not in group.commands:
        return f"no command {words[1]}"
    try:
        group.commands[words[1]].make_context(words[1], list(words[2:]))
    except typer.Exit:
        return ""
    except Exception as error:
        missing = type(error).__name__ == "MissingParameter" and not whole
        return "" if missing else str(error)
    return ""
