"""Every error pathsum raises on purpose.

    PathsumError
    ├── CheckpointError          a model could not be read
    │   ├── UnsupportedFamily    its architecture, or a field of its config, is not known here
    │   └── MissingTensor        a tensor the config promises is absent or has another shape
    ├── TextError                a text or token list cannot be used
    ├── NotApplicable            the question makes no sense for this model
    ├── ExpansionTooLarge        the answer needs a bound from the caller
    ├── TrainingError            a recipe, a resume or a run folder is wrong
    └── StudyError               a reading or a report could not be made

A message says what is wrong, where (file, tensor, both shapes) and what to do next. Not in the paper.

>>> try:
...     pathsum.run(pathsum.open("two-layer-small"), "")
... except pathsum.errors.TextError as error:
...     print(error)
the text is empty; give at least one token
"""


class PathsumError(Exception):
    """Base of every error pathsum raises on purpose; its subclasses are in `pathsum.errors`. Not in the paper.

    >>> try:
    ...     pathsum.open("two-layr")
    ... except pathsum.PathsumError as error:
    ...     print(error)
    no model 'two-layr': did you mean 'two-layer'? built-in are one-layer, ...; or give a path or hf:owner/name
    """


class CheckpointError(PathsumError):
    """A model could not be read."""


class UnsupportedFamily(CheckpointError):
    """The architecture, or a config field that changes the numbers, is not known here."""


class MissingTensor(CheckpointError):
    """A tensor the config promises is absent or has another shape."""


class TextError(PathsumError):
    """A text or a list of tokens cannot be used as asked."""


class NotApplicable(PathsumError):
    """The question makes no sense for this model."""


class ExpansionTooLarge(PathsumError):
    """The answer would be unboundedly large; the message names the bound to pass."""


class TrainingError(PathsumError):
    """A recipe, a resume or a run folder is wrong."""


class StudyError(PathsumError):
    """A reading or a report could not be made."""
