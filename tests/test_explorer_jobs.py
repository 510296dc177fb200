"""Long answers: their process, their progress, cancelling, the queue, and what is kept on disk."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import pathsum
from explorers import FAST, explorer, finished
from pathsum.errors import StudyError
from pathsum.explorer.app import application
from pathsum.explorer.cache import WRITING, Cache
from pathsum.explorer.settings import Settings

SLOW = {"model": FAST, "reading": "carried", "parameters": {"sequences": 1024}}


@pytest.fixture
def client(tmp_path):
    with explorer(tmp_path) as client:
        yield client


def start(client, wanted) -> dict:
    answer = client.post("/api/jobs", json=wanted)
    assert answer.status_code == 202, answer.text
    return answer.json()


def quick(seed: int = 0) -> dict:
    return {"model": FAST, "reading": "repeats", "parameters": {"seed": seed}}


def process_of(client, job) -> subprocess.Popen:
    return client.app.app.state.jobs.get(job["id"]).process


def until(true, seconds: float = 60) -> None:
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last
        time.sleep(0.02)


def test_a_reading_is_what_the_library_says_and_comes_from_disk_the_second_time(client, tmp_path):
    job = finished(client, start(client, quick()))
    assert (job["state"], job["done"], job["total"], job["error"]) == ("done", 1, 1, "")
    found = client.get(f"/api/jobs/{job['id']}/answer").json()
    here = pathsum.repeats(pathsum.open(FAST))
    assert [row["copy"] for row in found["rows"]] == [1, 2, 3]
    assert [row["loss"] for row in found["rows"]] == pytest.approx([row["loss"] for row in here.rows()])
    assert found["manifest"] == here.manifest
    again = start(client, quick())
    assert again["state"] == "done" and process_of(client, again) is None
    assert len(list(tmp_path.iterdir())) == 1


def test_another_option_is_another_answer_and_a_default_spelled_out_is_none(client, tmp_path):
    finished(client, start(client, quick()))
    assert start(client, {**quick(), "parameters": {}})["state"] == "done"
    other = finished(client, start(client, quick(1)))
    assert other["state"] == "done" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "empty"])
def test_a_damaged_answer_is_made_again(client, tmp_path, damage):
    finished(client, start(client, quick()))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    spoilt = {"cut": whole[:middle], "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
              "other": gzip.compress(b"[]"), "empty": b""}  # fmt: skip
    file.write_bytes(spoilt[damage])
    job = start(client, quick())
    assert job["state"] == "running"
    assert finished(client, job)["state"] == "done"
    assert json.loads(gzip.decompress(file.read_bytes())) == json.loads(gzip.decompress(whole))


def test_a_cancelled_job_is_gone_within_a_second_and_leaves_nothing(client, tmp_path):
    job = start(client, SLOW)
    until(lambda: client.get(f"/api/jobs/{job['id']}").json()["stage"] == pathsum_title("carried"))
    process = process_of(client, job)
    assert process.poll() is None
    begun = time.monotonic()
    assert client.delete(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    assert process.wait(timeout=1) < 0 and time.monotonic() - begun < 1
    assert client.get(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    assert client.get(f"/api/jobs/{job['id']}/answer").json()["error"] == "NotReady"
    assert list(tmp_path.iterdir()) == []


def pathsum_title(name: str) -> str:
    from pathsum.study.catalogue import BY_NAME

    return BY_NAME[name].title


def test_one_job_of_a_model_runs_and_the_others_wait_their_turn(client):
    first, second, third = (start(client, wanted) for wanted in (SLOW, quick(), quick(1)))
    assert [job["state"] for job in (first, second, third)] == ["running", "queued", "queued"]
    assert [client.get(f"/api/jobs/{job['id']}").json()["before"] for job in (first, second, third)] == [0, 1, 2]
    assert client.delete(f"/api/jobs/{second['id']}").json()["state"] == "cancelled"
    assert process_of(client, third) is None
    client.delete(f"/api/jobs/{first['id']}")
    assert finished(client, third)["state"] == "done"
    assert process_of(client, second) is None
    assert [job["id"] for job in client.get("/api/jobs").json()] == [first["id"], second["id"], third["id"]]


def test_the_same_question_twice_is_one_job(client):
    first, second = start(client, SLOW), start(client, SLOW)
    assert first["id"] == second["id"]
    client.delete(f"/api/jobs/{first['id']}")


def test_jobs_of_two_models_run_at_once_and_a_full_queue_says_so(tmp_path):
    with explorer(tmp_path, FAST, "one-layer") as client:
        jobs = [start(client, {**SLOW, "model": name}) for name in (FAST, "one-layer")]
        assert [job["state"] for job in jobs] == ["running", "running"]
        for seed in range(16):
            start(client, quick(seed))
        refused = client.post("/api/jobs", json=quick(99))
        assert (refused.status_code, refused.json()["error"]) == (429, "Busy")


def test_closing_the_server_kills_its_workers(tmp_path):
    with explorer(tmp_path) as client:
        process = process_of(client, start(client, SLOW))
        waiting = start(client, quick())
        jobs = client.app.app.state.jobs
    assert process.poll() is not None
    assert jobs.get(waiting["id"]).state == "cancelled" and jobs.get(waiting["id"]).process is None


def test_a_worker_ends_when_its_server_is_gone():
    worker = subprocess.Popen([sys.executable, "-m", "pathsum.explorer.worker"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    ask = {"reading": "carried", "options": {}, "text": None, "sequences": 1024, "context": None, "seed": 0}
    worker.stdin.write(json.dumps({"place": FAST, "asks": {"0": ask}}) + "\n")
    worker.stdin.flush()
    assert "Opening" in worker.stdout.readline()
    worker.stdin.close()
    assert worker.wait(timeout=10) == 1
    worker.stdout.close()


@pytest.mark.parametrize(
    ("reading", "parameters", "error", "told"),
    [("importance", {"only": "L9H9"}, "NotApplicable", "L9H9"), ("attention", {"text": "x"}, "TextError", "1 token"),
     ("attention", {"context": 9999}, "TextError", "takes 2 to 256")],
)  # fmt: skip
def test_what_a_reading_refuses_is_told(client, reading, parameters, error, told):
    job = finished(client, start(client, {"model": FAST, "reading": reading, "parameters": parameters}))
    answer = client.get(f"/api/jobs/{job['id']}/answer")
    if error == "NotApplicable":
        assert job["state"] == "done" and told in answer.json()["manifest"]["not_applicable"]
    else:
        assert (job["state"], job["error"]) == ("failed", error) and told in job["detail"]
        assert told in answer.json()["detail"]


def test_a_default_text_that_says_nothing_is_an_answer_with_its_reason(tmp_path):
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    pathsum.save(tmp_path / "words", pathsum.toys.induction_model(d_vocab=3, n_ctx=48).weights, tokenizer)
    with explorer(tmp_path / "cache", str(tmp_path / "words")) as client:
        for reading in ("bigrams", "attention"):
            job = finished(client, start(client, {"model": "words", "reading": reading}))
            assert job["state"] == "done", job
            answer = client.get(f"/api/jobs/{job['id']}/answer").json()
            assert answer["rows"] == [] and "at least 2" in answer["manifest"]["not_applicable"]
        wanted = {"model": "words", "reading": "bigrams", "parameters": {"text": "anything"}}
        assert finished(client, start(client, wanted))["error"] == "TextError"


def test_a_process_that_dies_is_told(client):
    job = start(client, SLOW)
    os.kill(process_of(client, job).pid, 9)
    job = finished(client, job)
    assert (job["state"], job["error"]) == ("failed", "WorkerEnded") and "signal 9" in job["detail"]


def test_a_typed_text_is_text_and_no_path(client, tmp_path):
    wanted = {"model": FAST, "reading": "bigrams", "parameters": {"text": str(Path(__file__))}}
    job = finished(client, start(client, wanted))
    found = client.get(f"/api/jobs/{job['id']}/answer").json()
    assert found["rows"][0]["bigrams"] < 100 and found["manifest"]["text"]["source"] == "typed"


def test_paths_of_a_prompt_are_a_job(client):
    answer = client.post("/api/paths", json={"model": FAST, "prompt": "the cat sat on the", "limit": 3})
    job = finished(client, answer.json())
    found = client.get(f"/api/jobs/{job['id']}/answer").json()
    run = pathsum.run(pathsum.open(FAST), "the cat sat on the")
    here = pathsum.strongest_paths(pathsum.expand(run).toward(centred(run.logits[-1].argmax(), FAST), -1), 3)
    assert [row["name"] for row in found["rows"]] == [path.name for path in here.paths]
    assert [row["value"] for row in found["rows"]] == pytest.approx(here.values.tolist(), rel=1e-3)
    assert found["manifest"]["options"]["limit"] == 3


def centred(token, name: str) -> torch.Tensor:
    """A logit less the mean of all."""
    d_vocab = pathsum.open(name).spec.d_vocab
    return torch.nn.functional.one_hot(token, d_vocab)[None] - 1 / d_vocab


def test_an_unknown_job_is_refused(client):
    for method in ("get", "delete"):
        assert getattr(client, method)("/api/jobs/none").json()["error"] == "NoSuchJob"


def test_what_was_left_half_written_is_swept(tmp_path):
    old, fresh = tmp_path / f"{WRITING}old", tmp_path / f"{WRITING}fresh"
    for file in (old, fresh):
        file.write_text("half")
    os.utime(old, (0, 0))
    Cache(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [fresh.name]


def test_answers_stay_within_their_size_and_what_was_asked_for_longest_ago_goes_first(tmp_path):
    answer = {"noise": random.Random(0).randbytes(5_000).hex()}
    kept = lambda: sorted(file.name.partition(".")[0] for file in tmp_path.iterdir())
    cache = Cache(tmp_path)
    for time_of, name in enumerate("abc"):
        cache.put(name, answer)
        os.utime(tmp_path / f"{name}.json.gz", (time_of, time_of))
    size = (tmp_path / "a.json.gz").stat().st_size
    small = Cache(tmp_path, 3 * size)
    assert kept() == ["a", "b", "c"] and small.get("a") == answer
    small.put("d", answer)
    assert kept() == ["a", "c", "d"]
    Cache(tmp_path, 2 * size)
    assert kept() == ["a", "d"]
    Cache(tmp_path, 1).put("e", answer)
    assert kept() == ["e"]


def test_the_size_of_the_cache_is_the_settings(tmp_path):
    with explorer(tmp_path, kept=12_345) as client:
        assert client.app.app.state.jobs.cache.most == 12_345


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    cache = Cache(tmp_path)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        cache.put("00", {})
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_and_a_model_in_memory_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="pass another folder"):
        application([pathsum.open(FAST)], Settings(cache=tmp_path / "file" / "cache"))
    with pytest.raises(StudyError, match="in memory only"):
        application([pathsum.toys.induction_model()], Settings(cache=tmp_path))
    with pytest.raises(StudyError, match="needs a model"):
        application([], Settings(cache=tmp_path))
