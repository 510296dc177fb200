"""A docstring as the help of a command."""

import inspect
import re


def flowing(doc: str | None) -> str:
    """Its paragraphs, to be broken where the terminal ends, without what only Python raises; `\\b` keeps its lines."""
    said = re.sub(r"\s*Raises `\w+`[^.]*\.", "", inspect.cleandoc(doc or ""))
    paragraphs = re.split(r"\n\s*\n", said)
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in paragraphs)
