"""The documentation's blocks of code and commands, as tests run them, and what they print beside what pages show."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GENERATED = ("readings.md", "reference.md")
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md"))
                               if p.name not in GENERATED and p.parent.name != "decisions")]  # fmt: skip
LEFT_OUT = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is that of its fence, `below` the text block that follows at once."""

    label: str
    text: str
    line: int
    below: str


@dataclass(frozen=True)
class Command:
    """A `pathsum` or `make` to type, without redirections, and what the page shows below it."""

    words: tuple[str, ...]
    shown: str
    line: int


def blocks(page: Path) -> list[Block]:
    text, found = page.read_text(encoding="utf-8"), []
    for fence in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.S | re.M):
        below = re.match(r"\n+ *```text\n(.*?)^ *```$", text[fence.end() :], re.S | re.M)
        line = text[: fence.start()].count("\n") + 1
        found.append(Block(fence[2], textwrap.dedent(fence[3]), line, below[1] if below else ""))
    return found


def commands(block: Block) -> Iterator[Command]:
    """Of a `console` block the lines after `$`, each with its output; of an `sh` block every line."""
    lines, typed, shown, start = block.text.splitlines(), "", [], 0
    for number, line in enumerate(lines, start=block.line + 1):
        if typed.endswith("\\"):
            typed = typed[:-1] + line
        elif block.label == "sh" or line.startswith("$ "):
            yield from _command(typed, shown, start)
            typed, shown, start = line.removeprefix("$ "), [], number
        else:
            shown.append(line)
    yield from _command(typed, shown, start)


def _command(typed: str, shown: list[str], line: int) -> Iterator[Command]:
    typed = re.split(r" [|>&]+ ?", typed.removeprefix("/usr/bin/time -v "))[0]
    if typed.startswith(("pathsum ", "make ")) and (words := shlex.split(typed, comments=True)):
        yield Command(tuple(words), "\n".join(shown), line)


def spans(page: Path) -> list[str]:
    """Commands named in a sentence."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return [" ".join(span.split()) for span in re.findall(r"`((?:pathsum|make)\s[^`]+)`", prose)]


def difference(shown: str, printed: str, numbers: bool = True) -> str:
    """Where the page says another thing than was printed; "" where it does not.

    Where lines break is no matter; `…` stands for anything; decimals may differ by 3 % or two of their last digit, and
    those with a negative exponent, which are rounding errors, tenfold. With `numbers` False, decimals may be any.
    """
    there, at = _pieces(printed), 0
    parts = [_pieces(part) for part in shown.split(LEFT_OUT)]
    for index, part in enumerate(parts):
        last = len(there) - len(part)
        start = last if index == len(parts) - 1 and (part or index == 0) else at
        places = range(start, (0 if index == 0 else last) + 1)
        place = next((place for place in places if _same(part, there[place : place + len(part)], numbers)), -1)
        if place < at:
            return f"shown, not printed: {' '.join(part)}\n\nprinted:\n{printed}"
        at = place + len(part)
    return ""


def _pieces(text: str) -> list[str]:
    number = r"[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
    return re.findall(rf"{number}|[^\s\d]+?(?=[−-]?\d|\s|$)|\S", text.replace(LEFT_OUT, " "))


def _same(shown: list[str], there: list[str], numbers: bool) -> bool:
    return len(shown) == len(there) and all(a == b or _near(a, b, numbers) for a, b in zip(shown, there, strict=True))


def _near(shown: str, there: str, numbers: bool) -> bool:
    try:
        a, b = (float(text.replace("−", "-").replace(",", "")) for text in (shown, there))
    except ValueError:
        return False
    decimal = any("." in text or "e" in text for text in (shown, there))
    if not decimal or not numbers:
        return decimal
    if "e-" in shown or "e-" in there:
        return max(abs(a), abs(b)) < 1e-12 or 0.1 < abs(a) / max(abs(b), 1e-300) < 10
    last = 10.0 ** -len(shown.partition(".")[2])
    return abs(a - b) <= max(2 * last, 0.03 * abs(a))
