"""A TCP proxy whose connections a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on to one port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> int:
        """End every connection at once, without a farewell; give how many there were."""
        cut = len(self._open)
        for writer in list(self._open):
            writer.transport.abort()
        return cut // 2

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        both = {writer}
        try:
            to_target = await asyncio.open_connection("127.0.0.1", self._target)
            both.add(to_target[1])
            self._open |= both
            await asyncio.gather(_copy(reader, to_target[1]), _copy(to_target[0], writer))
        except (OSError, asyncio.CancelledError):
            pass  # the target is away, or the proxy ends; asyncio would log a cancelled one
        finally:
            for each in both:
                each.transport.abort()
            self._open -= both
            self._tasks.discard(task)

    async def _end(self) -> None:
        for _ in range(
            5
        ):  # what was accepted just now gets its task, which then ends with the rest
            await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes what was aborted


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def proxy(target: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a port for the length of the block."""
    running = Proxy(target)
    server = await asyncio.start_server(running._accept, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        await running._end()
        await server.wait_closed()
