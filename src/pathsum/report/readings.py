"""The readings, and what is asked of one prompt, with results that show themselves: what `pathsum` exports."""

from collections.abc import Callable
from functools import cache

from pathsum.report.shown import Shown, shown
from pathsum.study import cross, lens, paths, prompt, scores
from pathsum.study import verify as verified
from pathsum.study.catalogue import BY_NAME
from pathsum.study.readings import public

prompt_expansion = shown(prompt.prompt_expansion)
prompt_lens = shown(lens.prompt_lens)
prompt_paths = shown(paths.prompt_paths)
prompt_scores = shown(scores.prompt_scores)
prompt_table = shown(cross.prompt_table)
verify = shown(verified.verify)


@cache
def reading(name: str) -> Callable[..., Shown]:
    """A reading of the catalogue, by name."""
    return shown(public(name))


def __getattr__(name: str) -> Callable[..., Shown]:
    if name not in BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return reading(name)
