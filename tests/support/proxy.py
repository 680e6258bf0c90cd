"""A TCP proxy whose connections a test can cut.

It runs in threads of its own and joins them all at the end, so that no socket of it is left to
the garbage collector, whatever the event loop of the test was doing when it stopped.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio.to_thread


class Proxy(socketserver.ThreadingTCPServer):
    """Passes bytes on to one port of this machine."""

    daemon_threads = False  # closing the server joins them

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.port: int = self.server_address[1]
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._ended = False

    def cut(self) -> int:
        """End every connection at once, without a farewell; give how many there were."""
        with self._lock:
            for pair in self._open:
                _end(*pair)
            return len(self._open)

    @contextmanager
    def joined(self, client: socket.socket, server: socket.socket) -> Iterator[bool]:
        """Hold two sockets as one connection; gives False once the proxy has ended."""
        with self._lock:
            self._open.append((client, server))
            going = not self._ended
        try:
            yield going
        finally:
            with self._lock:
                self._open.remove((client, server))

    def end(self) -> None:
        """Accept nothing more, end every connection and wait for their threads."""
        self.shutdown()
        with self._lock:
            self._ended = True
        self.cut()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        client: socket.socket = self.request
        proxy = self.server
        assert isinstance(proxy, Proxy)
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", proxy.target)) as up,
            proxy.joined(client, up) as going,
        ):
            if going:
                back = threading.Thread(target=_copy, args=(up, client))
                back.start()
                _copy(client, up)
                back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _end(source, sink)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for it


@asynccontextmanager
async def proxy(target: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a port for the length of the block."""
    running = Proxy(target)
    thread = threading.Thread(target=running.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.end)
            await anyio.to_thread.run_sync(thread.join)
