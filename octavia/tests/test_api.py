# SPDX-License-Identifier: Apache-2.0
"""The client of the LB API."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead_octavia_provider.api import Client, Problem
from tests.conftest import override
from tests.lbapi import LBAPI

OPENAPI = pathlib.Path(__file__).parents[2] / "internal/apiserver/openapi.json"


@pytest.fixture
def fake(conf: Any) -> Iterator[LBAPI]:
    with LBAPI() as found:
        override(api_urls=[found.url], api_timeout=2)
        yield found


def problem(code: int, **headers: str) -> tuple[int, dict[str, str], Any]:
    return (
        code,
        headers,
        {"title": "T", "status": code, "detail": "the detail", "errors": [{"field": "a", "detail": "b"}]},
    )


@pytest.mark.parametrize("code", [429, 503, 0])
def test_repeats(code: int, fake: LBAPI) -> None:
    fake.faults = [problem(code), problem(code)]
    Client().put("p", "n", {}, None)
    assert [method for method, _, _ in fake.requests] == ["PUT"] * 3


def test_repeats_until_the_deadline(fake: LBAPI) -> None:
    override(api_timeout=0.5)
    fake.faults = [problem(503)] * 100
    with pytest.raises(Problem, match="the detail; a: b"):
        Client().put("p", "n", {}, None)
    assert len(fake.requests) < 100


def test_retry_after_beyond_the_deadline(fake: LBAPI) -> None:
    fake.faults = [problem(429, **{"Retry-After": "60"})]
    with pytest.raises(Problem) as error:
        Client().put("p", "n", {}, None)
    assert error.value.retry_after == 60
    assert len(fake.requests) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 409, 412, 413, 422])
def test_final_answers(code: int, fake: LBAPI) -> None:
    fake.faults = [problem(code)]
    with pytest.raises(Problem) as error:
        Client().put("p", "n", {}, None)
    assert (error.value.status, error.value.fields, str(error.value)) == (code, ("a",), "the detail; a: b")


def test_error_that_is_no_problem(fake: LBAPI) -> None:
    fake.faults = [(500, {}, ["text"])]
    with pytest.raises(Problem, match="Internal Server Error"):
        Client().get("p", "n")


def test_next_url(fake: LBAPI) -> None:
    override(api_urls=["http://127.0.0.1:9", fake.url], api_timeout=3)
    api = Client()
    assert api.get("p", "n") is None
    api.delete("p", "n")


def test_tags(fake: LBAPI) -> None:
    api = Client()
    api.put("p", "n", {"x": 1}, None)
    with pytest.raises(Problem):
        api.put("p", "n", {"x": 2}, None)
    found = api.get("p", "n")
    assert found
    api.put("p", "n", {"x": 2}, found[1])
    with pytest.raises(Problem):
        api.put("p", "n", {"x": 3}, found[1])


def test_token_is_read_for_each_request(fake: LBAPI, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    override(api_token_file=str(token))
    api = Client()
    with pytest.raises(Problem, match="credentials can't be read"):
        api.get("p", "n")
    for text in ("one", "two"):
        token.write_text(text + "\n")
        api.get("p", "n")
        assert fake.requests[-1][2]["Authorization"] == f"Bearer {text}"


def test_list_pages(api: Client) -> None:
    for at in range(105):
        api.put("pages", f"n{at}", {"forward": "nat", "address": f"198.18.0.{at}", "labels": {"octavia": "x"}}, None)
    assert len(list(api.list("pages"))) == 105


def test_requests_are_in_the_openapi_document(fake: LBAPI) -> None:
    document = json.loads(OPENAPI.read_text())
    paths, schemas = document["paths"], document["components"]["schemas"]
    one = "/v1/projects/{project}/loadbalancers/{loadbalancer}"
    wanted = {(one, "get"), (one, "put"), (one, "delete"), (one + "/status", "get"), (one.rpartition("/")[0], "get")}
    assert all(method in paths[path] for path, method in wanted)
    parameters = {p["name"]: p["schema"] for p in paths["/v1/statuses"]["get"]["parameters"]}
    assert {"labelSelector", "holder", "since", "wait"} <= set(parameters)
    Client().put("p", "n", {"address": "198.18.0.1", "listeners": [], "pools": []}, None)
    Client().changes("h", "", 0)
    answer = Client().changes("h", "", 1000)
    assert "wait" not in fake.queries[-2]
    assert int(fake.queries[-1]["wait"]) == parameters["wait"]["maximum"]
    assert set(answer) == set(schemas["StatusChanges"]["properties"])
    assert set(answer["items"][0]) < set(schemas["StatusItem"]["properties"])
