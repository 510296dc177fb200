"""pathsum reads transformers as circuits: exact paths from tokens to logits.

    model = pathsum.open("two-layer")
    run   = pathsum.run(model, "some text")
    pathsum.expand(run).by_order().values      # [order, pos, d_vocab]
    pathsum.composition(model).frame           # every reading: a table with its manifest

Names are loaded when first used, so that importing pathsum is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from pathsum.study.catalogue import BY_NAME as _READINGS

if TYPE_CHECKING:
    from pathsum.errors import PathsumError as PathsumError
    from pathsum.lowrank import LowRank as LowRank
    from pathsum.paths.cross import cross as cross
    from pathsum.paths.logits import expand as expand
    from pathsum.paths.scores import expand_scores as expand_scores
    from pathsum.paths.search import strongest_paths as strongest_paths
    from pathsum.paths.target import log_probability as log_probability
    from pathsum.paths.target import logit as logit
    from pathsum.paths.target import logit_difference as logit_difference
    from pathsum.paths.virtual import virtual_head as virtual_head
    from pathsum.report.readings import attention as attention
    from pathsum.report.readings import bigram_pairs as bigram_pairs
    from pathsum.report.readings import bigrams as bigrams
    from pathsum.report.readings import bugs as bugs
    from pathsum.report.readings import carried as carried
    from pathsum.report.readings import composition as composition
    from pathsum.report.readings import describe as describe
    from pathsum.report.readings import eigenvalues as eigenvalues
    from pathsum.report.readings import entries as entries
    from pathsum.report.readings import importance as importance
    from pathsum.report.readings import importance_heads as importance_heads
    from pathsum.report.readings import importance_layers as importance_layers
    from pathsum.report.readings import importance_paths as importance_paths
    from pathsum.report.readings import importance_sources as importance_sources
    from pathsum.report.readings import in_context as in_context
    from pathsum.report.readings import induction as induction
    from pathsum.report.readings import loss_by_position as loss_by_position
    from pathsum.report.readings import matching as matching
    from pathsum.report.readings import pointer as pointer
    from pathsum.report.readings import positional as positional
    from pathsum.report.readings import prompt_expansion as prompt_expansion
    from pathsum.report.readings import prompt_lens as prompt_lens
    from pathsum.report.readings import prompt_paths as prompt_paths
    from pathsum.report.readings import prompt_scores as prompt_scores
    from pathsum.report.readings import prompt_table as prompt_table
    from pathsum.report.readings import reconstruction as reconstruction
    from pathsum.report.readings import repeats as repeats
    from pathsum.report.readings import spectra as spectra
    from pathsum.report.readings import taps as taps
    from pathsum.report.readings import trigrams as trigrams
    from pathsum.report.readings import verify as verify
    from pathsum.report.readings import virtual as virtual
    from pathsum.runs.run import Run as Run
    from pathsum.runs.run import run as run
    from pathsum.study.claim_run import run_claims as run_claims
    from pathsum.study.result import Result as Result
    from pathsum.study.sweep import series_table as series_table
    from pathsum.study.sweep import sweep as sweep
    from pathsum.weights.checkpoint import open_model as open  # noqa: A004, F401
    from pathsum.weights.families.family import Family as Family
    from pathsum.weights.families.family import take as take
    from pathsum.weights.model import Model as Model
    from pathsum.weights.positions import Rotary as Rotary
    from pathsum.weights.saving import save as save
    from pathsum.weights.spec import Attention as Attention
    from pathsum.weights.spec import Spec as Spec

_PROMPTS = ("prompt_expansion", "prompt_lens", "prompt_paths", "prompt_scores", "prompt_table", "verify")

_PLACES = {
    "errors": ("pathsum.errors", None),
    "PathsumError": ("pathsum.errors", "PathsumError"),
    "LowRank": ("pathsum.lowrank", "LowRank"),
    "Attention": ("pathsum.weights.spec", "Attention"),
    "Family": ("pathsum.weights.families.family", "Family"),
    "Rotary": ("pathsum.weights.positions", "Rotary"),
    "Spec": ("pathsum.weights.spec", "Spec"),
    "take": ("pathsum.weights.families.family", "take"),
    "Model": ("pathsum.weights.model", "Model"),
    "Result": ("pathsum.study.result", "Result"),
    "Run": ("pathsum.runs.run", "Run"),
    "open": ("pathsum.weights.checkpoint", "open_model"),
    "save": ("pathsum.weights.saving", "save"),
    "run": ("pathsum.runs.run", "run"),
    "expand": ("pathsum.paths.logits", "expand"),
    "expand_scores": ("pathsum.paths.scores", "expand_scores"),
    "virtual_head": ("pathsum.paths.virtual", "virtual_head"),
    "cross": ("pathsum.paths.cross", "cross"),
    "strongest_paths": ("pathsum.paths.search", "strongest_paths"),
    "logit": ("pathsum.paths.target", "logit"),
    "logit_difference": ("pathsum.paths.target", "logit_difference"),
    "log_probability": ("pathsum.paths.target", "log_probability"),
    "run_claims": ("pathsum.study.claim_run", "run_claims"),
    "series_table": ("pathsum.study.sweep", "series_table"),
    "sweep": ("pathsum.study.sweep", "sweep"),
    "toys": ("pathsum.toys", None),
    **{name: ("pathsum.report.readings", name) for name in (*_READINGS, *_PROMPTS)},
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'pathsum' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    loaded = importlib.import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return __all__
