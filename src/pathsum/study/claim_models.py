"""Which models the claims are measured on: `QUICK`, one seed of each kind and what ships, and `FULL`.

A model of the first seed is the same in both, so that the full run goes on where the quick one stopped.
"""

from pathsum.study.experiments import Experiment

ONE_LAYER = (("heads", 4), ("d_model", 128), ("vocab", 1024), ("steps", 1200))


def _zero(vocab: int, steps: int, seeds: int) -> Experiment:
    changes = (("vocab", vocab), ("d_model", 128), ("steps", steps))
    return Experiment(f"zero-layer-{vocab}-{steps}", "zero-layer", "zero layers", changes, seeds)


def _wide(d_model: int, seeds: int) -> Experiment:
    return Experiment(f"two-layer-d{d_model}", "two-layer-small", "two layers", (("d_model", d_model),), seeds)


def _deep(layers: int, d_model: int, seeds: int) -> Experiment:
    changes = (("layers", layers), ("d_model", d_model))
    return Experiment(f"{layers}-layer-d{d_model}", "two-layer-small", "deeper", changes, seeds)


EQUAL_WIDTH = tuple((layers, 128) for layers in (2, 3, 4, 5, 6))
EQUAL_PARAMETERS = ((2, 128), (3, 110), (4, 96), (5, 86), (6, 76))
"""Layers and d_model; `d_model (2 · 1024 + 4 · 128 · layers)` is that of two layers, to 1 %."""
DEPTHS = {"equal width": EQUAL_WIDTH, "equal parameters": EQUAL_PARAMETERS}
VOCABULARIES, STEPS = (512, 1024, 2048), (250, 1000)
WIDTHS = (64, 256)

BUILTIN = {"one-layer": "one layer", "two-layer": "two layers"}
"""Models that ship, and what kind they are."""
VARIANTS = ("one-layer-smeared-small", "one-layer-convolution-small")


def _both(seeds: int, over_training: int) -> tuple[Experiment, ...]:
    return (
        Experiment("two-layer-small", "two-layer-small", "two layers", (), over_training, over_training=True),
        Experiment("one-layer-control", "one-layer", "one-layer variants", ONE_LAYER, seeds),
        *(Experiment(name, name, "one-layer variants", (), seeds) for name in VARIANTS),
    )


QUICK: tuple[Experiment, ...] = (*_both(1, 1), _zero(1024, 1000, 1))
FULL: tuple[Experiment, ...] = (
    *_both(3, 10),
    Experiment("one-layer-12", "one-layer", "one layer", (("d_model", 256), ("vocab", 1024), ("steps", 1000)), 5),
    *(_zero(vocab, steps, 3) for vocab in VOCABULARIES for steps in STEPS),
    *(_wide(d_model, 3) for d_model in WIDTHS),
    *(_deep(layers, d_model, 2) for layers, d_model in (*EQUAL_WIDTH, *EQUAL_PARAMETERS) if layers != 2),
    Experiment("two-layer-mlp-small", "two-layer-mlp-small", "MLPs", (), 2),
    Experiment("two-layer-12", "two-layer", "two layers", (), 2),
)


def depth_experiment(layers: int, d_model: int) -> str:
    """The experiment of that depth and width."""
    return "two-layer-small" if (layers, d_model) == (2, 128) else f"{layers}-layer-d{d_model}"
