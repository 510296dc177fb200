"""`pathsum explore` as a process: the address it prints, a port in use, Ctrl-C; and many readers at once."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from explorers import FAST
from pathsum.explorer.serve import url
from pathsum.explorer.settings import Settings


@contextmanager
def served(cache: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it printed."""
    command = [sys.executable, "-c", "from pathsum.cli import main; main()", "explore", FAST, "--port", "0"]
    process = subprocess.Popen([*command, "--cache", str(cache), *options], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.startswith("Open http://"), process.stderr.read()
        yield process, line.removeprefix("Open ").strip()
    finally:
        process.kill()
        process.communicate()


def read(address: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def fails(*options: str) -> str:
    command = [sys.executable, "-c", "from pathsum.cli import main; main()", "explore", FAST, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_it_serves_what_it_prints_and_ends_cleanly_with_ctrl_c(tmp_path):
    with served(tmp_path) as (process, address):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        assert read(address)[0] == 200
        origin = address.rstrip("/")
        wanted = json.dumps({"model": FAST, "reading": "carried", "parameters": {"sequences": 1024}}).encode()
        headers = {"Origin": origin, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}api/jobs", wanted, headers)
        assert json.loads(urllib.request.urlopen(request, timeout=60).read())["state"] == "running"
        workers = children(process.pid)
        assert len(workers) == 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert list(tmp_path.iterdir()) == []


def children(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def test_another_address_needs_the_token_that_it_prints(tmp_path):
    with served(tmp_path, "--host", "0.0.0.0") as (_, address):
        place, token = re.fullmatch(r"(http://[\d.]+:\d+/)\?token=([\w-]{32})", address).groups()
        assert read(f"{place}api/models")[0] == 401
        assert read(f"{place}api/models", Authorization=f"Bearer {token}")[0] == 200
        assert read(f"{place}api/models", Host="evil.example", Authorization=f"Bearer {token}")[0] == 403


def test_a_port_in_use_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = fails("--port", str(taken.getsockname()[1]), "--cache", str(tmp_path))
    assert "in use" in told and "--port" in told


def test_an_address_that_is_not_this_machines_and_a_cache_that_cannot_be_are_one_line(tmp_path):
    assert "--host" in fails("--host", "192.0.2.77", "--port", "0")
    (tmp_path / "file").write_text("")
    assert "--cache" in fails("--port", "0", "--cache", str(tmp_path / "file"))


def test_help_loads_neither_the_server_nor_torch():
    code = "import sys; from pathsum.cli import main\ntry: main(['explore', '--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'polars', 'fastapi', 'uvicorn', 'starlette'} & set(sys.modules), 'heavy imports'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--cache" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("settings", "shown"),
    [(Settings(), "http://127.0.0.1:8321/"), (Settings(host="::1", port=9), "http://[::1]:9/"),
     (Settings(host="10.0.0.7", token="t"), "http://10.0.0.7:8321/?token=t")],
)  # fmt: skip
def test_the_address_is_one_to_open(settings, shown):
    assert url(settings) == shown


@pytest.mark.slow
def test_twenty_readers_at_once_see_no_error_and_memory_stays_flat(tmp_path):
    with served(tmp_path) as (process, address):
        make_ready(address)
        pages = [
            f"?model={FAST}",
            "heads",
            "composition",
            "readings?reading=describe",
            "static/vega.js",
            "api/readings",
        ]
        seen: list[int] = []

        def reader(number: int, until: float) -> None:
            turn = number
            while time.monotonic() < until:
                seen.append(read(address + pages[turn % len(pages)])[0])
                prompt = f"api/attention?model={FAST}&prompt=reader%20{number}%20turn%20{turn % 7}"
                seen.append(read(address + prompt)[0])
                turn += 1

        def all_read(seconds: float) -> int:
            until = time.monotonic() + seconds
            threads = [threading.Thread(target=reader, args=(number, until)) for number in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return memory(process.pid)

        first = all_read(15)
        last = all_read(60)
        assert set(seen) == {200} and len(seen) > 500
        assert last < first + 50_000_000, (first, last)


def make_ready(address: str) -> None:
    """All answers on disk."""
    origin, text = {"Origin": address.rstrip("/")}, "hx-get"
    for page in ("overview", "heads", "composition"):
        request = urllib.request.Request(f"{address}start/{page}?model={FAST}", b"", origin)
        text = urllib.request.urlopen(request, timeout=60).read().decode()
        while waiting := re.search(r'hx-get="/(jobs/\w+)"', text):
            time.sleep(0.2)
            text = read(address + waiting[1])[1].decode()
        assert "Done." in text
    request = urllib.request.Request(f"{address}start/readings?model={FAST}&reading=describe", b"", origin)
    urllib.request.urlopen(request, timeout=60).read()


def memory(process: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
