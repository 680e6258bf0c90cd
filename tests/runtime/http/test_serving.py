"""What the server does with connections, before there is a request."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.server import ServerState

from runtime.http import serving
from runtime.http.serving import Protocol

WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
PART = b"GET / HTTP/1.1\r\nhost:"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"."})


@pytest.mark.parametrize(("before", "part"), [(b"", b""), (b"", PART), (WHOLE, PART)])
async def test_headers_that_do_not_come_end_the_connection(
    before: bytes, part: bytes, monkeypatch: pytest.MonkeyPatch
):
    """With the first request of a connection as with later ones."""
    monkeypatch.setattr(serving, "_HEADERS_S", 0.1)
    config = uvicorn.Config(answer, timeout_keep_alive=600)
    config.load()
    make = partial(Protocol, config=config, server_state=ServerState(), app_state={})
    loop = asyncio.get_running_loop()
    async with await loop.create_server(make, "127.0.0.1", 0) as server:
        with anyio.fail_after(60):
            port = server.sockets[0].getsockname()[1]
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                if before:
                    await stream.send(before)
                    assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
                await stream.send(part)
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    while True:
                        await stream.receive()
