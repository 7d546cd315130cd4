"""A server for one page, on 127.0.0.1 alone: the page, and its questions.

Other programs of this machine, and pages of any other site that a browser here shows, can reach
the port. So the name that was asked for is checked first: a page whose own name leads here
(DNS rebinding) sends neither `Origin` nor `Sec-Fetch-Site`, only its `Host`. Then comes where the
request is from, then a word that only the opened address has, in its fragment, which no request
carries. The page itself holds no data, so it needs no word.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socketserver
import sys
import threading
from concurrent.futures import CancelledError
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"
TOKEN: Final = "X-Pyprof2-Token"  # noqa: S105 - the name of a header
_LONGEST: Final = 1 << 16
"""Bytes of the longest question."""
_PATIENCE: Final = 30.0
"""Seconds that a client may take to send its question."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Loopback:
    """A page that is served until `close`.

    Attributes:
        port: where it listens.
    """

    def __init__(
        self, page: str, policy: str, ask: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Take the page, its content security policy, and who answers, in any thread."""
        self._token = secrets.token_urlsafe(32)
        self._server = _Server(page.encode(), policy, self._token, ask)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=[0.1], daemon=True).start()

    @property
    def address(self) -> str:
        """The address for the browser; it is a secret."""
        return f"http://{HOST}:{self.port}/#t={self._token}"

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False

    def __init__(
        self, page: bytes, policy: str, token: str,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:  # fmt: skip
        self.page, self.policy, self.token, self.ask = page, policy, token, ask
        super().__init__((HOST, 0), _Handler)

    def server_bind(self) -> None:
        """Bind, and look up no name: that of the base class asks for its own."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but not that a browser went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server: _Server

    def parse_request(self) -> bool:
        """Read the beginning of a request, and refuse it, whatever it is, if it is not ours."""
        if not super().parse_request():
            return False
        why = self._foreign()
        if why:
            self._answer(HTTPStatus.FORBIDDEN, why)
        return not why

    def _foreign(self) -> str:
        """Say why a request is not one of our page; empty: it may be."""
        host = f"{HOST}:{self.server.server_port}"
        if self.headers.get_all("Host") != [host]:
            return "another host was asked for"
        origins = self.headers.get_all("Origin", [])
        if any(origin != f"http://{host}" for origin in origins) or (
            self.command == "POST" and not origins
        ):
            return "it comes from another page"
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        is_opened = site == "none" and self.command == "GET"
        return "" if site == "same-origin" or is_opened else "it comes from another site"

    def do_GET(self) -> None:
        """Give the page."""
        if self.path != "/":
            self._answer(HTTPStatus.NOT_FOUND, "there is one page")
            return
        policy = f"{self.server.policy}; frame-ancestors 'none'"
        self._send(HTTPStatus.OK, self.server.page, "text/html", policy)

    def do_POST(self) -> None:
        """Answer a question."""
        if not hmac.compare_digest(
            self.headers.get(TOKEN, "").encode("latin-1", "replace"), self.server.token.encode()
        ):
            self._answer(HTTPStatus.UNAUTHORIZED, "the word of the address is missing")
        elif self.path != "/ask":
            self._answer(HTTPStatus.NOT_FOUND, "questions go to /ask")
        elif self.headers.get_content_type() != "application/json":
            self._answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "questions are JSON")
        elif (message := self._message()) is None:
            self._answer(HTTPStatus.BAD_REQUEST, "it is no question")
        else:
            try:
                answer = self.server.ask(message)
            except (CancelledError, TimeoutError, RuntimeError):
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "the editor is gone")
                return
            self._send(HTTPStatus.OK, json.dumps(answer).encode(), "application/json")

    def _message(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST:
            return None
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _answer(self, code: HTTPStatus, text: str) -> None:
        self._send(code, text.encode(), "text/plain")

    def _send(
        self, code: HTTPStatus, body: bytes, kind: str, policy: str = "default-src 'none'"
    ) -> None:
        self.send_response(code)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Say nothing of versions."""
        return "pyprof2"

    def log_message(self, *_: Any) -> None:
        """Write no log."""
