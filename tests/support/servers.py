"""`ostinato serve` beside a test, or what it answers with inside of one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from runtime.http.app import application
from runtime.http.gateway import Gateway
from runtime.http.sharing import Sharing
from tests.support.command import Command, wait_for
from tests.support.engines import DirectEngine


@contextmanager
def serving(
    command: Command,
    *arguments: object,
    model: str = "mock:seed=1",
    ready: bool = True,
    within_s: float = 60,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the server on a free port; give its address and process."""
    with command.started("serve", "--port", 0, "--model", model, *arguments) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://[0-9.:]+", line)
        assert found, line + process.stderr.read()
        url = found[0]
        if ready:
            wait_for(
                lambda: httpx.get(url + "/health").status_code == 200 or process.poll() is not None,
                within_s=within_s,
            )
        yield url, process


@asynccontextmanager
async def served(
    engine: DirectEngine | None = None, *, absent: bool = False, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Gateway]]:
    engine = engine or DirectEngine()
    gateway = Gateway(engine.model, Sharing("here"), **settings)
    gateway.engine = None if absent else engine  # type: ignore[assignment]
    transport = httpx.ASGITransport(application(gateway))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client, gateway
    await gateway.chat.close()
