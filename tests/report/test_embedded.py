"""What a page holds of the views: within its budgets, what matters first, and the same numbers once unpacked."""

import base64
import gzip
import json

import numpy as np
import torch

from pathsum.report.views import embedded
from pathsum.report.views.packed import Places, packed
from pathsum.report.views.token_tables import Strongest, TokenTables


def unpacked(data: str):
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_packed_data_is_the_same_bytes_every_time():
    data = {"tokens": ["</script>", "\u202e", "🦊"], "value": 0.5}
    assert packed(data) == packed(data) and unpacked(packed(data)) == data
    assert not set(packed(data)) & set("<>&\"'")


def test_tables_of_many_tokens_come_back():
    ids = torch.randperm(3000, generator=torch.Generator().manual_seed(1))[:1200].view(300, 4)
    values = torch.linspace(-2, 2, 1200).view(300, 4)
    tables = TokenTables(Strongest(ids, values), None, Strongest(ids[:, :2], values[:, :2]))
    tokens = torch.arange(300)
    places = Places.of(tokens, [tables])
    sent = places.packed_tables(tables)
    assert sent["destinations"] is None and sent["sources"]["width"] == 2
    planes = [np.frombuffer(base64.b64decode(part), np.uint8).astype(int) for part in sent["outs"]["places"]]
    found = places.ids[torch.tensor(sum(plane << 8 * at for at, plane in enumerate(planes)))].view(4, 300).mT
    assert torch.equal(found, ids) and torch.equal(places.ids[places.of_tokens(tokens)], tokens)
    roots = np.frombuffer(base64.b64decode(sent["outs"]["values"]), np.int8).reshape(4, 300).T / 127
    slack = (2 * np.abs(roots) + 0.5 / 127) * 0.5 / 127 * 2 * 1.0001
    assert (np.abs(np.sign(roots) * roots**2 * sent["outs"]["scale"] - values.numpy()) <= slack).all()


def test_heads_to_show_come_first_in_the_models_order(results):
    assert embedded.heads_within(results, 100) == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert embedded.heads_within(results, 1) == ["L1H1"]
    assert embedded.heads_within(results, 2) == ["L0H0", "L1H1"]


def test_tokens_of_the_sample_come_first_then_frequent_ones(hostile):
    assert sorted(embedded.tokens_within(hostile, 16).tolist()) == list(range(16))
    assert embedded.tokens_within(hostile, 3).tolist() == [0, 1, 2]


def test_what_does_not_fit_is_left_out_and_said(hostile, results, monkeypatch):
    monkeypatch.setattr(embedded, "ATTENTION_BYTES", 2 * 48 * 49)
    monkeypatch.setattr(embedded, "TABLE_BYTES", 60 * 16 * 2)
    monkeypatch.setattr(embedded, "CARRIED", 1)
    attention, head, paths = embedded.embedded_views(hostile, results)
    assert attention.left_out == "The page holds 2 of 4 heads; pathsum explore shows all of them."
    held = unpacked(attention.packed)
    assert list(held["heads"]) == ["L0H0", "L1H1"] == [each["name"] for each in held["index"]["heads"]]
    assert head.left_out == "The page holds 2 of 4 heads' tables; pathsum explore shows all of them."
    assert list(unpacked(head.packed)["heads"]) == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert paths.left_out == "The page holds 1 of 48 predictions; pathsum explore shows all of them."
    assert unpacked(paths.packed)["index"]["held"] == [47]


def test_whole_views_say_nothing_of_it(hostile, results):
    views = embedded.embedded_views(hostile, results)
    assert [view.left_out for view in views] == ["", "", ""] and unpacked(views[2].packed)["index"]["held"] is None
