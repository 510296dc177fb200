"""The explorer's door: who may ask, what may be asked, and that every mistake is a clear 4xx."""

import pytest

from explorers import FAST, HERE, explorer
from pathsum.explorer.guard import HEADERS
from pathsum.explorer.settings import ADDRESS, BODY, PROMPT, Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with explorer(tmp_path_factory.mktemp("cache")) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with explorer(tmp_path_factory.mktemp("cache"), host="10.0.0.7", token="secret") as client:
        client.headers["host"] = "10.0.0.7:8321"
        client.headers["origin"] = "http://10.0.0.7:8321"
        yield client


def refused(answer, status: int, error: str) -> str:
    """The detail of an answer that must be a refusal."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert set(found) == {"error", "detail"} and found["error"] == error
    assert found["detail"]
    return found["detail"]


# ---- who ----


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2]"]
)
def test_a_foreign_host_is_refused(client, host):
    refused(client.get("/api/models", headers={"host": host}), 403, "ForeignHost")


@pytest.mark.parametrize("host", ["localhost:8321", "LOCALHOST", "127.0.0.1:9000", "[::1]:8321"])
def test_names_of_this_machine_are_no_foreign_hosts(client, host):
    answer = client.get("/api/models", headers={"host": host, "origin": f"http://{host}"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:8322",
        "file://127.0.0.1:8321",
        "http://[",
        "é",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_foreign_origin_is_refused(client, origin, method):
    answer = client.request(method, "/api/jobs", headers={"origin": origin.encode()})
    refused(answer, 403, "ForeignOrigin")


def test_what_changes_something_must_say_where_it_comes_from(client):
    del client.headers["origin"]
    try:
        assert client.get("/api/models").status_code == 200
        refused(client.post("/api/jobs", json={"model": FAST, "reading": "describe"}), 403, "ForeignOrigin")
    finally:
        client.headers["origin"] = HERE


def test_another_sites_page_cannot_load_anything(client):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    refused(client.get("/api/models", headers=headers), 403, "ForeignOrigin")
    assert client.get("/api/models", headers=headers | {"sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=secre", "?token=%ff", "?token=s%C3%A9cret"])
def test_without_its_token_nothing_is_answered(guarded, query):
    assert "token" in refused(guarded.get(f"/api/models{query}"), 401, "Unauthorized")
    refused(guarded.get("/api/models", headers={"authorization": "Bearer wrong"}), 401, "Unauthorized")
    refused(guarded.get("/api/models", headers={"cookie": "pathsum-8321=wrong"}), 401, "Unauthorized")
    refused(guarded.get("/openapi.json"), 401, "Unauthorized")


def test_the_token_of_the_address_goes_into_a_cookie(guarded):
    answer = guarded.get("/api/models?a=1&token=secret&b=%20x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/api/models?a=1&b=+x")
    kept = answer.headers["set-cookie"]
    assert kept.startswith("pathsum-8321=secret;") and "HttpOnly" in kept and "SameSite=lax" in kept
    assert guarded.get("/api/models", headers={"cookie": "pathsum-8321=secret"}).status_code == 200
    assert guarded.get("/api/models", headers={"authorization": "Bearer secret"}).status_code == 200
    guarded.cookies.clear()


def test_a_token_sends_nobody_elsewhere(guarded):
    answer = guarded.get("http://127.0.0.1:8321//evil.example/%2e%2e?token=secret")
    assert answer.headers["location"].startswith("/evil.example")
    guarded.cookies.clear()


def test_a_wildcard_address_knows_addresses_and_no_names():
    settings = Settings(host="0.0.0.0", token="secret")
    assert settings.knows("192.168.1.5:8321") and settings.knows("[fe80::1]:8321") and settings.knows("localhost")
    assert not settings.knows("evil.example:8321")


def test_every_answer_says_what_it_may_load_and_who_may_frame_it(client):
    for answer in (client.get("/api/models"), client.get("/nothing"), client.get("/", headers={"host": "evil"})):
        assert all(answer.headers[name] == value for name, value in HEADERS.items())
        assert answer.headers["cache-control"] == "no-store"


# ---- what ----


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%00",
     "/api/jobs/..%2f..", "/static//etc/passwd", "/.git/config", "/api/jobs/%2e%2e%2fjobs"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(client, path):
    refused(client.get(path), 404, "NoSuchJob" if "/api/jobs/" in path and "%2f" not in path else "NotFound")


@pytest.mark.parametrize("name", ["../two-layer", "/etc", "hf:gpt2", "two-layer", "", "é\u202e<script>", "a\x00b"])
def test_only_open_models_can_be_named(client, name):
    detail = refused(client.post("/api/jobs", json={"model": name, "reading": "describe"}), 404, "NoSuchModel")
    assert FAST in detail


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"head": "x" * 201}, "201 characters"),
        ({"nothing": 1}, "no parameter 'nothing'"),
        ({"cluster": "tcp://1"}, "no parameter 'cluster'"),
        ({"corpus": "/etc/passwd"}, "may be python"),
        ({"count": -1}, "from 1 to"),
        ({"count": 1.5}, "whole number"),
        ({"count": 1e99}, "whole number"),
        ({"count": "NaN"}, "whole number"),
        ({"delta": "1,2"}, "one distance"),
        ({"delta": "rms"}, "no distance"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(client, parameters, told):
    wanted = {"model": FAST, "reading": "trigrams", "parameters": parameters}
    assert told in refused(client.post("/api/jobs", json=wanted), 422, "StudyError")


def test_an_unknown_reading_is_refused_with_the_list(client):
    assert "composition" in refused(client.post("/api/jobs", json={"model": FAST, "reading": "x"}), 422, "StudyError")


def test_what_is_too_long_is_refused(client):
    refused(client.post("/api/jobs", content=b"x" * (BODY + 1)), 413, "TooLarge")
    refused(client.post("/api/jobs", content=(b"x" * BODY for _ in range(2))), 413, "TooLarge")
    refused(client.get("/api/models", params={"x": "y" * ADDRESS}), 414, "TooLong")
    prompt = {"model": FAST, "prompt": "x" * (PROMPT + 1)}
    assert "prompt" in refused(client.post("/api/paths", json=prompt), 422, "InvalidRequest")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": 1}', b'{"model": "a", "reading": "b", "c": 1}']
)
def test_bodies_that_are_none_are_refused(client, body):
    refused(client.post("/api/jobs", content=body, headers={"content-type": "application/json"}), 422, "InvalidRequest")


def test_a_length_that_is_no_number_is_refused(client):
    refused(client.post("/api/jobs", content=b"", headers={"content-length": "x"}), 413, "TooLarge")


def test_methods_that_are_not_served_are_refused(client):
    refused(client.put("/api/models"), 405, "MethodNotAllowed")


def test_readings_are_described_with_what_can_be_set(client):
    found = {reading["name"]: reading for reading in client.get("/api/readings").json()}
    names = {parameter["name"] for parameter in found["trigrams"]["parameters"]}
    assert {"count", "head", "source", "delta", "corpus"} <= names and "cluster" not in names
    assert {"text", "sequences", "context"} <= {parameter["name"] for parameter in found["attention"]["parameters"]}
