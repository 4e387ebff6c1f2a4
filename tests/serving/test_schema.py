"""Requests made up from the OpenAPI document: none of them is answered with a status of 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error

from .conftest import Make, live

pytestmark = pytest.mark.slow
schema = schemathesis.pytest.from_fixture("api")


@pytest.fixture(scope="module")
def api(make_service: Make, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    service = make_service(collect=tmp_path_factory.mktemp("votes") / "votes.jsonl", batch_seconds=0)
    with live(service) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


@schema.parametrize()
@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True)
def test_no_request_is_answered_with_a_server_error(case: Any) -> None:
    response = case.call()
    case.validate_response(response, checks=[not_a_server_error])
    if response.status_code == 422:
        problem = response.json()
        assert isinstance(problem.get("detail") or problem["error"]["message"], str)
