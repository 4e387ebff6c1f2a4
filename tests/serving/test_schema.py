"""Requests made up from the OpenAPI document: none of them is answered with a status of 5xx."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from .conftest import Make, live

SETTINGS = hypothesis.settings(
    max_examples=40, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True, database=None
)


@pytest.mark.slow
def test_no_request_is_answered_with_a_server_error(make_service: Make, tmp_path: Path) -> None:
    statuses: Counter[tuple[str, int]] = Counter()
    with live(make_service(collect=tmp_path / "votes.jsonl", batch_seconds=0)) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        operations = [operation.ok() for operation in schema.get_all_operations()]
        assert len(operations) >= 9
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
                    continue

                @SETTINGS
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def call(case: Any) -> None:
                    response = case.call()
                    case.validate_response(response, checks=[not_a_server_error])
                    statuses[f"{case.method} {case.path}", response.status_code] += 1
                    if response.status_code in (400, 422):
                        problem = response.json()
                        assert isinstance(problem.get("detail") or problem["error"]["message"], str)

                call()
    for path in ("POST /api/search", "GET /api/search", "POST /api/encode", "POST /v1/embeddings"):
        assert statuses[path, 200] > 5, statuses  # requests that pass
        assert statuses[path, 422] > 5, statuses  # and those that do not
