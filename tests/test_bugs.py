"""A bug is a product whose parts the text has and which it never has itself; counts are those of a naive loop."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pathsum
from pathsum.behaviour.skips import SkipIndex
from pathsum.cli import main
from pathsum.errors import ExpansionTooLarge, NotApplicable, TextError
from pathsum.toys import keep_in_mind_model, skip_trigram_model

TEXT = "keep it in mind and keep them at bay and keep the dogs at bay and the ships in the bay"


def naive(tokens: list[int], window: int, source: int) -> list[int]:
    """Positions from which the source is in sight."""
    return [j for j in range(len(tokens)) if source in tokens[max(0, j - window + 1) : j + 1]]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(2, 12), st.tuples(*[st.integers(0, 5)] * 3))
@settings(deadline=None, max_examples=300)
def test_counts_are_those_of_a_naive_loop(tokens, window, triple):
    index = SkipIndex.of(torch.tensor(tokens), 6, window)
    source, destination, out = triple
    seen = naive(tokens, window, source)
    follow = [*tokens[1:], None]
    assert index.sight(source) == len(seen)
    assert index.destinations(source, destination).positions.tolist() == [j for j in seen if tokens[j] == destination]
    assert index.outs(source, out).positions.tolist() == [j for j in seen if follow[j] == out]
    triples = index.triples(source, destination, out)
    assert triples.positions.tolist() == [j for j in seen if (tokens[j], follow[j]) == (destination, out)]
    assert all(tokens[i] == source for i in triples.sources.tolist())
    assert index.occurring.tolist() == sorted(set(tokens))
    for found in (index.destinations(source, destination), index.outs(source, out)):
        if len(found):
            i, j = found.nearest
            assert tokens[i] == source and source not in tokens[i + 1 : j + 1]
            assert j - i == int((found.positions - found.sources).min())


def test_the_papers_bug_is_found_with_its_counts():
    model = keep_in_mind_model()
    rows = pathsum.bugs(model, text=TEXT, per_source=9, count=9).rows()
    assert {row["head"] for row in rows} == {"L0H0"}
    bug, other = rows
    assert (bug["source"], bug["destination"], bug["out"]) == ("keep", "in", "bay")
    assert (other["source"], other["destination"], other["out"]) == ("keep", "at", "mind")
    # "in" twice with a keep before it within 16 words; "bay" three times; from 21 words a keep is in sight.
    assert (bug["source_destination"], bug["source_out"]) == (2, 3)
    assert bug["expected"] == pytest.approx(2 * 3 / 21)
    assert bug["seen_destination"] == "keep it in mind and keep"
    assert bug["seen_out"] == "in mind and keep them at bay and keep the"
    assert bug["effect"] == pytest.approx(bug["qk"] * bug["ov"])
    # keep … in → mind is stronger, and no bug: the text has it.
    assert (bug["rank"], other["rank"]) == (2, 3)


def test_the_factor_that_is_meant_raises_the_bug_too():
    """The bug is the model's: after keep … in, bay is raised above every word but mind."""
    model = keep_in_mind_model(attention=40.0)
    tokens = model.tokenizer.encode("keep it in").ids
    logits = pathsum.run(model, tokens, dtype=torch.float64).logits[-1]
    assert [model.tokenizer.id_to_token(i) for i in logits.topk(2).indices.tolist()] == ["mind", "bay"]


def test_a_text_with_the_triple_has_no_bug():
    frame = pathsum.bugs(keep_in_mind_model(), text=TEXT + " keep ships in bay and keep it at mind").frame
    assert frame.is_empty()


def test_parts_further_apart_than_the_window_do_not_occur():
    far = "keep " + "the " * 20 + "in mind and keep at bay"
    assert pathsum.bugs(keep_in_mind_model(), text=far, head="L0H0").frame.is_empty()
    near = pathsum.bugs(keep_in_mind_model(), text=far, per_source=9, window=22).rows()
    assert ("in", "bay") in [(row["destination"], row["out"]) for row in near]


def test_parts_must_occur_as_often_as_asked():
    frame = pathsum.bugs(keep_in_mind_model(), text=TEXT, least=2, per_source=9).frame
    assert frame.select("destination", "out").rows() == [("in", "bay")]


def test_one_bug_of_a_source_unless_more_are_asked_for():
    assert len(pathsum.bugs(keep_in_mind_model(), text=TEXT).frame) == 1
    assert len(pathsum.bugs(keep_in_mind_model(), text=TEXT, per_source=2).frame) == 2


def test_passages_leave_out_what_is_far_from_both():
    text = "keep " + "the " * 20 + "in mind and keep at bay"
    row = pathsum.bugs(keep_in_mind_model(), text=text, window=22).rows()[0]
    assert row["seen_destination"] == "keep the the the … the the the in mind and keep"


@pytest.mark.parametrize("window", [0, 1])
def test_a_window_without_room_for_both_is_refused(window):
    with pytest.raises(TextError, match="at least 2"):
        SkipIndex.of(torch.tensor([1, 2]), 3, window)


# ---- which trigrams ----


def test_trigrams_of_one_source_one_head_and_a_corpus(tmp_path):
    model = keep_in_mind_model()
    rows = pathsum.trigrams(model, source="keep", head="L0H0").rows()
    assert (rows[0]["destination"], rows[0]["out"]) == ("in", "mind")
    assert {row["source"] for row in rows} == {"keep"} and len(rows) == 4
    assert pathsum.trigrams(model, source="keep", head="L0H1").frame.is_empty()
    assert pathsum.trigrams(model, source="dogs").frame.is_empty()
    (tmp_path / "text.txt").write_text("keep it in the bay")
    rows = pathsum.trigrams(model, corpus=str(tmp_path / "text.txt"), per_source=9).rows()
    assert [(row["source"], row["destination"], row["out"]) for row in rows] == [("keep", "in", "bay")]


def test_a_source_is_one_token():
    with pytest.raises(TextError, match=r"'keep in' is 2 tokens of toy-keep-in-mind \('keep', 'in'\)"):
        pathsum.trigrams(keep_in_mind_model(), source="keep in")
    with pytest.raises(TextError, match="token ids must be from 0 to 24"):
        pathsum.trigrams(keep_in_mind_model(), source=99)
    planted = skip_trigram_model([(1, 2, 3)])
    assert pathsum.trigrams(planted, source="1").rows() == pathsum.trigrams(planted, source=1).rows() != []
    with pytest.raises(TextError, match="give the id of a token"):
        pathsum.trigrams(planted, source="keep")


def test_a_byte_is_named_as_tables_show_it():
    model = pathsum.open("two-layer-small")
    newline = pathsum.trigrams(model, source="\n", head="L0H0", count=2).rows()
    assert {row["source"] for row in newline} == {"\n"}
    unseen = next(i for i in range(256) if model.tokenizer.decode([i]) == "\ufffd")
    name = f"<{model.tokenizer.id_to_token(unseen)}>"
    assert {r["source"] for r in pathsum.trigrams(model, source=name, count=1).rows()} == {name}


def test_an_unknown_head_and_too_many_rows_are_refused():
    with pytest.raises(NotApplicable, match="no head 'L3H0'; there are L0H0 to L0H1"):
        pathsum.trigrams(keep_in_mind_model(), head="L3H0")
    with pytest.raises(ExpansionTooLarge, match="1 to 1000"):
        pathsum.trigrams(keep_in_mind_model(), source="keep", count=1001)


# ---- size ----


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_large_text_is_indexed_in_bounded_memory():
    """20 million tokens, of which every pair within a window of 1,000 would be 20 billion."""
    code = """
import resource, torch
from pathsum.behaviour.skips import SkipIndex
torch.set_num_threads(1)
tokens = torch.randint(50_000, (20_000_000,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index = SkipIndex.of(tokens, 50_000, 1000)
found = index.destinations(3, 4)
assert 0 < len(found) < 400 and len(index.triples(3, 4, 5)) <= 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 700, "MB beyond the text"


# ---- on the command line ----


def test_the_commands_take_a_source_a_head_a_corpus_and_a_window(tmp_path, capsys):
    model, text = keep_in_mind_model(), tmp_path / "text.txt"
    pathsum.save(tmp_path / "model", model.weights, model.tokenizer)
    text.write_text(TEXT)

    def rows(*arguments: str) -> list[dict]:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--json"])
        assert stopped.value.code == 0
        return json.loads(capsys.readouterr().out)["rows"]

    where = str(tmp_path / "model")
    found = rows("trigrams", where, "--source", "keep", "--head", "L0H0", "--corpus", str(text), "--count", "2")
    assert [(row["destination"], row["out"]) for row in found] == [("in", "mind"), ("in", "bay")]
    (bug,) = rows("bugs", where, "--text", str(text))
    assert (bug["source"], bug["destination"], bug["out"]) == ("keep", "in", "bay")
    assert bug["seen_destination"].startswith("keep it in mind")
    assert rows("bugs", where, "--text", str(text), "--window", "2") == []
    assert rows("bugs", where, "--text", str(text), "--head", "L0H1") == []
