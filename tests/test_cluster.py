"""Tasks on a Dask cluster of processes of their own: what they give, and what a lost worker costs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import cluster_tasks
import pathsum
from pathsum.circuits.cut import compositions, cut
from pathsum.cli.app import build_app
from pathsum.errors import CheckpointError, StudyError
from pathsum.study.cluster import Source, run_tasks, worker_count
from pathsum.study.per_source import per_source
from pathsum.study.subject import Subject
from pathsum.toys import skip_trigram_model
from pathsum.weights.model import Model

WORKERS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and workers, one thread each, that can import the tests."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}

    def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)

    file = folder / "scheduler.json"
    common = ("--no-dashboard", "--scheduler-file", str(file))
    started = [start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", *common)]
    started += [start("dask_worker", "--no-nanny", "--nthreads", "1", *common) for _ in range(WORKERS)]
    try:
        from distributed import Client

        with Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(WORKERS, timeout=60)
            address = client.scheduler.address
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def model() -> Model:
    return pathsum.open("two-layer-small")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the workers: how a product is cut between threads shows in its last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "reading, options",
    [("entries", {"count": 5}), ("spectra", {"exact": True}), ("trigrams", {"count": 4, "head": "L1H2"})],
)
def test_tables_of_heads_are_those_made_here_to_the_last_bit(cluster, model, reading, options):
    read = getattr(pathsum, reading)
    assert_frame_equal(read(model, cluster=cluster, **options).frame, read(model, **options).frame, check_exact=True)


def test_rows_of_every_source_are_those_made_here_to_the_last_bit(cluster, model, tmp_path):
    for path, address in (("here", None), ("there", cluster)):
        rows = per_source(model, tmp_path / path, count=2, cluster=address)
        assert rows == 2 * 2 * len(Subject(model).head_names) * model.spec.d_vocab
    assert_frame_equal(pl.read_parquet(tmp_path / "here"), pl.read_parquet(tmp_path / "there"), check_exact=True)


def test_a_sweep_reads_checkpoints_on_workers_as_here(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])  # a relative place is not one for a worker in another folder
    series, readings = "checkpoints/two-layer-small@step-{000016,000064}", ("spectra", "repeats")
    manifests = [
        pathsum.sweep(series, readings, tmp_path / path, cluster=address)
        for path, address in (("here", None), ("there", cluster))
    ]
    assert manifests[0]["checkpoints"] == manifests[1]["checkpoints"]
    for reading in readings:
        here, there = (pathsum.series_table(tmp_path / path, reading) for path in ("here", "there"))
        assert_frame_equal(here, there, check_exact=True)


@pytest.mark.parametrize("options", [{}, {"writers": "all", "readers": "all", "metric": "tokens"}])
def test_compositions_are_those_made_here(cluster, model, options):
    keys = ["kind", "source", "destination"]
    there, here = (
        pathsum.composition(model, cluster=address, dtype="float64", **options).frame.sort(keys)
        for address in (cluster, None)
    )
    assert_frame_equal(there, here, check_exact=False, rel_tol=1e-9, abs_tol=1e-9)


def test_tasks_of_compositions_are_all_of_them_once(model):
    weights = model.weights.fold()
    whole = {(one.reader, one.writer): one.pairs for one in compositions(weights, writers="all", readers="all")}
    for groups in (1, 2, 99):
        parted = cut(weights, writers="all", readers="all", groups=groups)
        found = [one for task in parted.tasks for one in parted.pairs(task)]
        assert len(parted.tasks) == min(groups, 4) * (min(groups, 4) + 1) // 2
        assert len(found) == len(whole)
        for one in found:
            torch.testing.assert_close(one.pairs.score, whole[one.reader, one.writer].score, rtol=1e-5, atol=1e-6)


def test_a_lost_worker_costs_its_tasks_only(cluster, model, tmp_path):
    """Of the workers and one more, that one is killed while tasks run: all results are there, few were made twice."""
    extra = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", cluster, "--no-nanny", "--nthreads", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stderr=subprocess.DEVNULL,
    )
    try:
        while worker_count(cluster) < WORKERS + 1:
            time.sleep(0.1)
        taken, count = tmp_path / "taken", 48

        def kill() -> None:
            for _ in range(600):
                lines = taken.read_text().split("\n") if taken.exists() else []
                if sum(line.endswith(f" {extra.pid}") for line in lines) >= 2:
                    extra.send_signal(signal.SIGKILL)
                    return
                time.sleep(0.05)

        killer = threading.Thread(target=kill)
        killer.start()
        tasks = [(number, str(tmp_path)) for number in range(count)]
        found = [*run_tasks(cluster_tasks.slow, Subject(model), tasks, cluster)]
        killer.join()
    finally:
        extra.kill()
        extra.wait()
    assert found == [(number, model.spec.n_layers) for number in range(count)]
    lines = [line.split() for line in taken.read_text().splitlines()]
    lost = [number for number, pid in lines if int(pid) == extra.pid]
    assert len(lost) >= 2
    again = {number for number in lost if sum(line[0] == number for line in lines) > 1}
    assert again, "the worker was killed with nothing in hand"
    assert len(lines) <= count + len(lost)
    assert worker_count(cluster) == WORKERS


def test_what_a_task_raises_is_raised_here(cluster, model):
    with pytest.raises(ValueError, match="no such thing in two-layer-small"):
        list(run_tasks(cluster_tasks.refuses, Subject(model), [()], cluster))


def test_a_checkpoint_is_found_by_name_by_file_or_by_folder(model, tmp_path):
    assert Source.of(model).place == "two-layer-small"
    pathsum.save(tmp_path / "saved", model.weights, model.tokenizer)
    assert Source.of(pathsum.open(tmp_path / "saved")).place == str(tmp_path / "saved" / "model.safetensors")


def test_a_model_in_memory_and_a_cluster_that_is_not_there_are_refused(cluster):
    with pytest.raises(StudyError, match="in memory only"):
        pathsum.entries(skip_trigram_model([(1, 2, 3)]), cluster=cluster)
    with pytest.raises(StudyError, match="no Dask scheduler answers at tcp:"):
        pathsum.entries(pathsum.open("two-layer-small"), cluster="tcp://127.0.0.1:9")


def test_another_model_in_the_same_place_is_refused(cluster, model, tmp_path):
    folder = tmp_path / "changing"
    pathsum.save(folder, model.weights, model.tokenizer)
    opened = Subject(pathsum.open(folder))
    source = Source.of(opened.model)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b" " * 8)
    from pathsum.study import cluster as module

    with pytest.raises((StudyError, CheckpointError)):
        module._on_worker(cluster_tasks.slow, source, opened.model.spec, 0, 1, str(tmp_path))
    other = pathsum.open("two-layer").spec
    with pytest.raises(StudyError, match="is another model on a worker than here; save it as a folder"):
        module._on_worker(cluster_tasks.slow, Source.of(model), other, 0, 1, str(tmp_path))


def test_the_commands_take_an_address(cluster):
    command = ["entries", "two-layer-small", "--count", "1", "--csv"]
    there, here = (CliRunner().invoke(build_app("entries"), [*command, *more]) for more in (["--cluster", cluster], []))
    assert there.exit_code == here.exit_code == 0
    assert there.stdout == here.stdout and there.stdout.count("\n") > 10
