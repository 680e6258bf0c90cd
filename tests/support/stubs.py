"""A server whose replies a test chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Stub:
    """A server whose replies come from a list, the last one over and over."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any, dict[str, str]]] = []
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.send_response(405)
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                stub.seen.append((self.path, dict(self.headers), json.loads(body)))
                more = len(stub.replies) > 1
                status, reply, headers = stub.replies.pop(0) if more else stub.replies[0]
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in (headers | {"content-length": str(len(data))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def says(self, reply: Any, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.replies.append((status, reply, named))


@contextmanager
def stub_server() -> Iterator[Stub]:
    """Run one."""
    stub = Stub()
    thread = threading.Thread(target=stub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        stub.server.shutdown()
        stub.server.server_close()
        thread.join()
