"""One thread, fixed seeds, and hypothesis without a clock: the same tests fail everywhere or nowhere."""

import jaxtyping
import pytest
import torch
from hypothesis import settings

settings.register_profile("pathsum", derandomize=True, deadline=None, max_examples=40, database=None)
settings.load_profile("pathsum")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def unchecked():
    """Run-time checks of annotations off, as they are for users, whose errors are pathsum's own."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
