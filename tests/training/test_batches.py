import dataclasses

import numpy
import torch

from pathsum.training.batches import batch_at, even_windows
from pathsum.training.recipe import recipe

TOKENS = numpy.arange(5000, dtype=numpy.uint16)
SMALL = recipe("two-layer-small", context=32, batch=64, tiled=0.0)


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    assert torch.equal(batch_at(TOKENS, SMALL, 7), batch_at(TOKENS, SMALL, 7))
    assert not torch.equal(batch_at(TOKENS, SMALL, 7), batch_at(TOKENS, SMALL, 8))
    assert not torch.equal(batch_at(TOKENS, SMALL, 7), batch_at(TOKENS, dataclasses.replace(SMALL, seed=1), 7))


def test_rows_are_stretches_of_the_text_one_longer_than_the_context() -> None:
    rows = batch_at(TOKENS, SMALL, 0)
    assert rows.shape == (64, 33) and rows.dtype == torch.int64
    assert (rows.diff(dim=1) == 1).all()


def test_a_text_of_one_context_has_one_window() -> None:
    assert (batch_at(TOKENS[:33], SMALL, 0) == torch.arange(33)).all()


def test_tiled_rows_repeat_a_short_stretch() -> None:
    rows = batch_at(TOKENS, dataclasses.replace(SMALL, tiled=0.5), 0)
    plain = (rows.diff(dim=1) == 1).all(dim=1)
    assert 20 < int(plain.sum()) < 44
    for row in rows[~plain]:
        length = int((row == row[0]).nonzero()[1])
        assert 2 <= length <= 8 and torch.equal(row[length:], row[:-length])


def test_validation_windows_span_the_held_out_text() -> None:
    windows = even_windows(TOKENS, context=32, most=4)
    assert windows[:, 0].tolist() == [0, 1655, 3311, 4967] and windows[-1, -1] == 4999
    assert even_windows(TOKENS[:70], context=32, most=4).shape == (2, 33)
