"""Everything that the explorer's OpenAPI document allows is answered, or refused by a documented 4xx."""

import schemathesis
from hypothesis import HealthCheck, given, settings

from explorers import FAST, HERE, explorer


def test_nothing_that_may_be_asked_is_a_servers_error(tmp_path):
    with explorer(tmp_path) as client:
        document = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        operations = [found.ok() for found in document.get_all_operations()]
        assert len(operations) > 20
        for operation in operations:
            _try_everything(client, operation, {})
            _try_everything(client, operation, {"model": FAST})


def _try_everything(client, operation, known) -> None:
    """What the document allows, as it comes and with names that are known."""

    @given(case=operation.as_strategy())
    @settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    def asked(case):
        kept = case.as_transport_kwargs(base_url=HERE)
        headers = {**kept.get("headers", {}), "origin": HERE, "accept": "application/json"}
        more = {key: kept[key] for key in ("params", "json", "data") if kept.get(key) is not None}
        for place in ("params", "json"):
            if isinstance(more.get(place), dict):
                more[place] |= {key: value for key, value in known.items() if key in more[place]}
        answer = client.request(kept["method"], kept["url"], headers=headers, **more)
        assert answer.status_code < 500, (kept, answer.text)
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error", "detail"}, answer.text
        assert str(answer.status_code) in operation.definition.raw["responses"]

    asked()
