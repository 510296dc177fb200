"""Studies made once: a planted induction circuit whose tokens are hostile, and models of zero and one layer."""

import dataclasses

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import cases
from pathsum import toys
from pathsum.report.results import run_readings
from pathsum.study.result import Result
from pathsum.study.subject import Subject
from pathsum.weights.model import Model

HOSTILE = [
    "<script>alert(1)</script>", "</script>", "<!--", "]]>", "&amp;", "\u202eright to left", "\u200bzero\u200dwidth",
    "🦊", "שלום", "\n", "\x00\x1b[31m", "' onload='x", '"><img src=x onerror=alert(1)>', "${alert(1)}", "[[ ]]",
    "x" * 10_000,
]  # fmt: skip


@pytest.fixture(scope="session")
def hostile_tokens() -> list[str]:
    return HOSTILE


@pytest.fixture(scope="session")
def hostile() -> Subject:
    """Two layers: L0H0 is a previous-token head, L1H1 an induction head; every token tries to break the page."""
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(HOSTILE)}, unk_token="🦊"))
    model = toys.induction_model(d_vocab=len(HOSTILE), n_ctx=48)
    named = dataclasses.replace(model, name="<b>toy</b> & co", tokenizer=tokenizer)
    text = [*range(16), *range(16), *range(16)]
    return Subject(named, text, "<i>ids</i>", sequences=2, batch=2)


@pytest.fixture(scope="session")
def results(hostile: Subject) -> dict[str, Result]:
    return run_readings(hostile)


@pytest.fixture(scope="session", params=["zero_layers", "one_layer", "three_layers_rotary_rms", "three_layers_normed"])
def plain(request) -> tuple[Subject, dict[str, Result]]:
    """Random models without a tokenizer, and all readings of them."""
    case = cases.BY_NAME[request.param]
    subject = Subject(Model(case.name, case.weights), torch.arange(60).remainder(case.spec.d_vocab).tolist(), batch=2)
    return subject, run_readings(subject)
