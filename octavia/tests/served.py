# SPDX-License-Identifier: Apache-2.0
"""HTTP servers of tests, which answer with JSON on a port of their own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Query = dict[str, list[str]]


class Served:
    """A server while its context is entered."""

    url: str

    def answer(self, method: str, path: str, query: Query, body: Any, headers: dict[str, str]) -> Any:
        """Return status code, headers and body; code 0 breaks the connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        outer: Served = self

        class Handler(_Handler):
            owner = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Served
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        code, headers, answer = self.owner.answer(self.command, url.path, parse_qs(url.query), body, dict(self.headers))
        if code == 0:
            self.close_connection = True
            return
        text = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(code)
        for key, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(text))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Log nothing."""
