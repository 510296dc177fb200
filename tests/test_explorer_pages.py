"""The explorer's pages, as who asks for them without a browser sees them; and its API, asked everything."""

import html
import re
from urllib.parse import quote, urlencode

import pytest
import torch

import cases
import pathsum
from explorers import FAST, explorer
from pathsum.report.views.token_tables import token_tables
from pathsum.study.subject import Subject

PAGES = ("", "heads", "composition", "attention", "paths", "readings", "readings?reading=describe", "head?head=L1H1")
HOSTILE = ("<script>alert(1)</script>", "</script><b>", "\u202eabc", "a\u200bb", "👩‍👩‍👧", "\x00\x1b[2J", 
           "'\"><img src=x>", "{{ 7*7 }}", "x" * 10_000, "\ud7ff\uffff", "%00%ff")  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with explorer(tmp_path_factory.mktemp("cache"), FAST, "one-layer") as client:
        client.headers["accept"] = "text/html"
        yield client


def page(client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


def after(client, path: str) -> str:
    """A page when all that it asks for by itself has been made."""
    text = page(client, path)
    for start in re.findall(r'hx-post="(/start/[^"]*)"', text):
        part = client.post(html.unescape(start), headers={"hx-request": "true"}).text
        while waiting := re.search(r'hx-get="(/jobs/\w+)"', part):
            part = client.get(waiting[1], headers={"hx-request": "true"}).text
        assert "Done." in part, part
    return page(client, path)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_links_to_all_pages_and_keeps_both_models(client, name):
    more = "&" if "?" in name else "?"
    text = page(client, f"/{name}{more}model={FAST}&versus=one-layer" if "L1H1" not in name else f"/{name}")
    for other in ("heads", "composition", "attention", "paths", "readings"):
        link = f"/{other}?model={FAST}&versus=one-layer" if "L1H1" not in name else f"/{other}"
        assert f'href="{html.escape(link)}"' in text
    assert text.count("<h1") == 1 and "<main" in text and 'lang="en"' in text


def test_a_get_starts_nothing(client):
    for name in PAGES:
        page(client, f"/{name}")
    assert client.get("/api/jobs").json() == []


def test_a_page_asks_for_what_it_needs_and_shows_it_when_it_is_made(client):
    assert 'hx-trigger="load"' in page(client, "/composition")
    text = after(client, "/composition")
    best = pathsum.composition(pathsum.open(FAST)).rows()[0]
    assert "Which heads read which" in text and "hx-post" not in text.split("<main")[1]
    assert re.search(rf'{best["kind"]}</td><td><a href="/head\?model={FAST}&amp;head={best["source"]}">', text)


@pytest.mark.parametrize("name", ["zero-layer", "toy"])
def test_every_page_is_made_of_models_without_heads_or_tokenizer(tmp_path, name):
    pathsum.save(tmp_path / "toy", pathsum.toys.induction_model().weights)
    with explorer(tmp_path / "cache", "zero-layer", str(tmp_path / "toy")) as client:
        client.headers["accept"] = "text/html"
        for path in ("", "heads", "composition", "attention", "paths", "readings?reading=composition"):
            text = after(client, f"/{path}{'&' if '?' in path else '?'}model={name}")
            assert "hx-post" not in text.split("<main")[1]
        for path in ("attention", "paths"):
            answer = client.get(f"/api/{path}", params={"model": name, "prompt": "1 2 3"})
            assert answer.status_code == 200 and len(answer.json()["tokens"]) == 3
            if name == "toy":
                wrong = client.get(f"/api/{path}", params={"model": name, "prompt": "1 x"}, headers={"accept": "*/*"})
                assert wrong.status_code == 422 and "token ids" in wrong.json()["detail"]


def test_two_models_stand_side_by_side(client):
    text = after(client, f"/readings?model={FAST}&versus=one-layer&reading=describe")
    assert text.count('class="side"') == 2
    assert text.index("<bdi>two-layer-small</bdi>") < text.index("<bdi>one-layer</bdi>")
    assert text.count("What the model is made of <small>") == 2


def test_parameters_of_an_address_are_in_the_form_and_in_the_answer(client):
    text = after(client, "/readings?reading=entries&count=1")
    assert re.search(r'name="count"[^>]* value="1"', text)
    assert "<small>16 rows</small>" in text


def test_paths_of_a_small_model_are_found_at_once_and_kept(client):
    asked = {"model": FAST, "prompt": "the cat sat on the cat", "at": 2}
    text = page(client, f"/paths?{urlencode(asked)}")
    assert 'data-view="paths"' in text and 'data-at="2"' in text and "hx-post" not in text.split("<main")[1]
    before = client.get("/api/jobs").json()
    found = client.get("/api/paths", params=asked).json()
    run = pathsum.run(pathsum.open(FAST), asked["prompt"])
    expected = run.logits[2, run.tokens[3]] - run.logits[2].mean()
    assert found["value"] == pytest.approx(expected.item(), rel=1e-3) and found["at"] == 2
    assert len(found["tokens"]) == len(run.tokens) and found["paths"]
    assert client.get("/api/paths", params=asked).json() == found
    assert client.get("/api/jobs").json() == before


def test_paths_of_a_larger_model_are_a_job_that_the_page_starts(client, monkeypatch):
    monkeypatch.setattr("pathsum.explorer.opened.SEARCHED", 0)
    asked = urlencode({"prompt": "the dog sat on the dog", "at": 1})
    pending = page(client, f"/paths?{asked}")
    assert re.search(r'<a class="token" href="/paths\?prompt=the\+dog[^"]*at=3"', pending)
    assert pending.count('aria-current="true"') == 1
    json = {"accept": "application/json"}
    assert client.get(f"/api/paths?model={FAST}&{asked}", headers=json).json()["error"] == "NotReady"
    assert 'data-view="paths"' in after(client, f"/paths?{asked}")
    assert client.get(f"/api/paths?model={FAST}&{asked}", headers=json).json()["at"] == 1


@pytest.mark.parametrize(
    ("more", "error"),
    [({"at": 99}, "NotApplicable"), ({"target": "no such token"}, "TextError"), ({"against": "cat cat"}, "TextError")],
)
def test_paths_that_cannot_be_are_refused(client, more, error):
    asked = {"model": FAST, "prompt": "the cat", **more}
    answer = client.get("/api/paths", params=asked, headers={"accept": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (422, error)


def test_a_refusal_is_a_page_or_a_part_of_one(client):
    whole = client.get("/heads?model=none")
    assert whole.status_code == 404 and "NoSuchModel" in whole.text and "<main" in whole.text
    part = client.post("/start/heads?model=none", headers={"hx-request": "true"})
    assert part.status_code == 404 and part.text.startswith('<div class="notice"')
    boosted = client.get("/heads?model=none", headers={"hx-request": "true", "hx-boosted": "true"})
    assert "<main" in boosted.text
    json = client.get("/heads?model=none", headers={"accept": "application/json"}).json()
    assert set(json) == {"error", "detail"}


def test_a_failed_job_says_why_in_the_page(client):
    part = client.post("/start/paths?target=nosuchtoken&prompt=the", headers={"hx-request": "true"}).text
    while waiting := re.search(r'hx-get="(/jobs/\w+)"', part):
        part = client.get(waiting[1]).text
    assert "TextError" in part and "nosuchtoken" in part and "Try again" in part


def test_a_job_can_be_cancelled_from_the_page(client):
    part = client.post("/start/readings?reading=carried&sequences=900").text
    cancel = re.search(r'hx-post="(/jobs/\w+/cancel)"', part)[1]
    assert "Cancelled." in client.post(cancel).text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text_on_every_page(client, text):
    short = quote(text[:200])
    named = [f"{name}={short}" for name in ("paths?target", "heads?model", "head?head", "readings?source")]
    for path in (f"attention?prompt={quote(text)}", f"paths?prompt={quote(text)}", *named, short):
        answer = client.get(f"/{path}")
        assert answer.status_code in (200, 404, 413, 422), (path, answer.text)
        assert (
            "<script>alert" not in answer.text
            and "<img" not in answer.text
            and "<b>" not in answer.text.replace("<p><b>", "")
        )
        assert "49" not in answer.text.split("<main")[1] or "{{" not in text


def test_files_are_named_and_sent_once(client):
    for name in [*re.findall(r'"/static/([^"]+)"', page(client, "/")), "vega.js", "attention.js", "dom.js"]:
        answer = client.get(f"/static/{name}")
        assert answer.status_code == 200, name
        again = client.get(f"/static/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/htmx.LICENSE.txt").status_code == 404


def test_attention_is_what_the_run_recorded(client):
    import base64

    prompt = "the cat sat"
    index = client.get("/api/attention", params={"model": FAST, "prompt": prompt}).json()
    run = pathsum.run(pathsum.open(FAST), prompt)
    assert [head["name"] for head in index["heads"]] == [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    found = client.get("/api/attention/head", params={"model": FAST, "prompt": prompt, "head": "L1H2"}).json()
    n = len(run.tokens)
    shown = list(base64.b64decode(found["pattern"]))
    assert len(index["tokens"]) == n and len(shown) == n * (n + 1) // 2
    pattern = run.patterns[1, 2]
    assert shown == [round(pattern[i, j].item() * 255) for i in range(n) for j in range(i + 1)]


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [("prompt=", 422, "InvalidRequest"), ("prompt=a&head=L9H9", 422, "NotApplicable"),
     (f"prompt={'a b ' * 2000}&head=L0H0", 413, "TextTooLong"), ("prompt=a&head=x&model=none", 404, "NoSuchModel")],
)  # fmt: skip
def test_attention_that_cannot_be_is_refused(client, query, status, error):
    model = "" if "model=" in query else f"&model={FAST}"
    answer = client.get(f"/api/attention/head?{query}{model}", headers={"accept": "*/*"})
    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_a_heads_page_needs_its_readings_and_its_tables_do_not(client):
    asked = {"model": FAST, "head": "L1H2"}
    json = {"accept": "application/json"}
    assert client.get("/api/head", params=asked, headers=json).json()["error"] == "NotReady"
    after(client, "/head?head=L1H2")
    found = client.get("/api/head", params=asked, headers=json).json()
    assert found["name"] == "L1H2" and found["partners"]["reads_from"]
    (token,) = [
        one for one in client.get("/api/tokens", params={"model": FAST, "text": " the"}).json() if one["text"] == "·the"
    ]
    tables = client.get("/api/head/token", params={**asked, "token": token["id"]}, headers=json).json()
    assert len(tables["sources"]) == 12 and len(tables["outs"]) == 24
    assert client.get("/api/head/token", params={**asked, "token": 10**6}, headers=json).json()["error"] == "TextError"


def test_qk_tables_of_a_rotary_head_are_at_the_distance_that_is_asked(tmp_path):
    pathsum.save(tmp_path / "rotary", cases.BY_NAME["three_layers_rotary_rms"].weights)
    model = pathsum.open(tmp_path / "rotary")
    with explorer(tmp_path / "cache", str(tmp_path / "rotary"), FAST) as client:
        for name, turned in (("rotary", True), (FAST, False)):
            listed = client.get("/api/heads", params={"model": name}).json()
            assert {head["rotary"] for head in listed["heads"]} == {turned}
        asked = {"model": "rotary", "head": "L1H0", "token": 3}
        assert client.get("/api/head/token", params=asked).json()["sources"] is None
        found = [client.get("/api/head/token", params={**asked, "delta": delta}).json() for delta in (0, 4)]
        for delta, tables in zip((0, 4), found, strict=True):
            here = token_tables(Subject(model).tables, "L1H0", torch.tensor([3]), 12, delta).to_dict(model)
            assert {name: [tuple(pair) for pair in part] for name, part in tables.items()} == here
        assert found[0]["outs"] == found[1]["outs"] and found[0]["sources"] != found[1]["sources"]
        longest = model.spec.n_ctx - 1
        assert client.get(f"/head?head=L1H0&distance={longest}").status_code == 200
        for distance in (longest + 1, -1, "x"):
            assert client.get(f"/head?head=L1H0&distance={distance}").status_code == 422
            assert client.get("/api/head/token", params={**asked, "delta": distance}).status_code == 422
