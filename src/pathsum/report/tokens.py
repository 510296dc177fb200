"""Tokens as text that can be seen: spaces, line ends and characters without a glyph get a visible spelling."""

import unicodedata

MARKS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
"""Unicode categories that draw nothing of their own, or redirect what follows (right-to-left overrides are Cf)."""
COMBINING = {"Mn", "Me"}
"""Visible on the letter before; with none before, spelled out."""


def visible(text: str, most: int | None = None) -> str:
    """A token, cut to `most` characters, with spaces marked and invisible characters spelled out.

    >>> visible(" the\\n"), visible("a\\u200bb"), visible("\\u202eabc")
    ('·the⏎', 'a<U+200B>b', '<U+202E>abc')
    """
    return "".join(MARKS.get(letter) or letter for letter in _spelled(_cut(text, most), keep="".join(MARKS)))


def printable(text: str, most: int | None = None) -> str:
    """Any other text, such as a model's name: on one line, invisible characters spelled out, spaces kept."""
    return "".join(_spelled(_cut(" ".join(text.split()), most), keep=" "))


def _cut(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def _spelled(text: str, keep: str) -> list[str]:
    spelled, before = [], ""
    for letter in text:
        hidden = unicodedata.category(letter) in (INVISIBLE if before else INVISIBLE | COMBINING)
        spelled.append(f"<U+{ord(letter):04X}>" if hidden and letter not in keep else letter)
        before = letter
    return spelled
