# SPDX-License-Identifier: Apache-2.0
"""Client of the LB API: documents with entity tags, errors with the server's text, repeated within a deadline."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from fairlead_octavia_provider import options

Document = dict[str, Any]

REPEATED = (0, 429, 502, 503, 504)
"""Status codes after which the same request may succeed. 0 is no answer."""

LONGEST_WAIT = 5
"""Seconds that the LB API waits for changes at most."""

MARK = "octavia"
"""Label of load balancers that the provider has written. Its value is Octavia's ID of the load balancer."""


@dataclass
class Problem(Exception):
    """An answer that is not a success (RFC 9457), or no answer: then status is 0."""

    status: int
    detail: str
    fields: tuple[str, ...] = ()
    retry_after: float = 0

    def __str__(self) -> str:
        return self.detail


class Client:
    """A client of the LB API with the options of the group [fairlead]. Threads may share it."""

    def __init__(self, conf: Any = None) -> None:
        self.conf = conf if conf is not None else options.register()
        self._local = threading.local()
        self._url = 0

    def get(self, project: str, name: str) -> tuple[Document, str] | None:
        """Return a load balancer and its entity tag; None if there is none."""
        answer = self._request("GET", _path(project, name), missing=True)
        return None if answer is None else (answer.json(), answer.headers.get("ETag", ""))

    def put(self, project: str, name: str, document: Document, tag: str | None) -> None:
        """Replace the load balancer that has the entity tag, or create it if the tag is None (else Problem 412)."""
        condition = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        self._request("PUT", _path(project, name), json=document, headers=condition)

    def delete(self, project: str, name: str) -> None:
        """Delete a load balancer. It is a success if there is none."""
        self._request("DELETE", _path(project, name), missing=True)

    def status(self, project: str, name: str) -> Document | None:
        """Return the current status of a load balancer; None if there is none."""
        answer = self._request("GET", _path(project, name) + "/status", missing=True)
        return None if answer is None else answer.json()

    def list(self, project: str) -> Iterator[Document]:
        """Yield the load balancers of a project that the provider has written."""
        query = {"labelSelector": MARK}
        while True:
            page = self._request("GET", _path(project), params=query).json()
            yield from page["items"]
            if not page.get("continue"):
                return
            query["continue"] = page["continue"]

    def changes(self, holder: str, since: str, wait: int) -> Document:
        """Return statuses and statistics of all projects that changed since a version: a long poll, with a lease."""
        wait = min(wait, LONGEST_WAIT)
        query = {"labelSelector": MARK, "holder": holder, "since": since, "wait": str(wait or "")}
        given = {key: value for key, value in query.items() if value}
        answer: Document = self._request("GET", "/v1/statuses", params=given, wait=wait).json()
        return answer

    def projects(self) -> set[str]:
        """Return the projects with load balancers that the provider has written."""
        found: set[tuple[str, str]] = set()
        since = ""
        while True:
            answer = self.changes("", since, 0)
            page = {(item["project"], item["name"]) for item in answer["items"]}
            if page <= found:
                return {project for project, _ in found}
            found, since = found | page, answer["version"]

    def _request(self, method: str, path: str, *, wait: float = 0, missing: bool = False, **content: Any) -> Any:
        """Return the final answer, or the last one within the deadline; None for 404 if missing says so."""
        deadline = time.monotonic() + self.conf.api_timeout + wait
        pause = 0.05
        while True:
            try:
                return self._once(method, path, deadline, **content)
            except Problem as problem:
                if missing and problem.status == 404:
                    return None
                pause = max(problem.retry_after, pause)
                if problem.status not in REPEATED or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 1)

    def _once(self, method: str, path: str, deadline: float, *, headers: Any = None, **content: Any) -> Any:
        url = self.conf.api_urls[self._url % len(self.conf.api_urls)].rstrip("/")
        left = max(deadline - time.monotonic(), 0.05)
        try:
            given = {**self._token(), **(headers or {})}
            answer = self._session().request(method, url + path, timeout=(min(left, 3), left), headers=given, **content)
        except requests.RequestException as error:
            self._url += 1
            raise Problem(0, f"the LB API at {url} can't be reached: {type(error).__name__}") from error
        except OSError as error:
            raise Problem(-1, f"the LB API's credentials can't be read: {error}") from error
        if answer.status_code >= 300:
            raise _problem(answer)
        return answer

    def _session(self) -> requests.Session:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.trust_env = False
            session.verify = self.conf.api_ca_file or True
            if self.conf.api_cert_file:
                session.cert = (self.conf.api_cert_file, self.conf.api_key_file)
        return session

    def _token(self) -> dict[str, str]:
        """Read the token for each request, so that it can be replaced."""
        if not self.conf.api_token_file:
            return {}
        with open(self.conf.api_token_file, encoding="ascii") as file:
            return {"Authorization": "Bearer " + file.read().strip()}


def _path(project: str, name: str | None = None) -> str:
    path = f"/v1/projects/{quote(project, safe='')}/loadbalancers"
    return path if name is None else f"{path}/{quote(name, safe='')}"


def _problem(answer: requests.Response) -> Problem:
    """Return an error with all that the server says about it."""
    try:
        body = answer.json()
        fields = [(error.get("field", ""), error.get("detail", "")) for error in body.get("errors") or []]
        detail = body.get("detail") or body.get("title") or answer.reason
    except (ValueError, AttributeError):
        fields, detail = [], answer.reason
    text = "; ".join([detail, *(f"{field}: {why}" for field, why in fields)])
    try:
        retry_after = float(answer.headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0
    return Problem(answer.status_code, text, tuple(field for field, _ in fields), retry_after)
