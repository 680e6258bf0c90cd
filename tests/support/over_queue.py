"""Ask an engine of the tests over a queue, one decision after another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from msgspec.structs import replace

from engine.broker import broker
from engine.client import QueueEngine, connect_engine
from engine.contract import Ask
from tests.support.asker import question
from tests.support.engine_core import scheduler_of
from tests.support.queues import MODEL, request, until, working


class Asking:
    """What is asked; `outcomes` has what the engine says of each record that is answered."""

    def __init__(
        self, backend: Any, client: QueueEngine, group: anyio.abc.TaskGroup, salt: str
    ) -> None:
        self._engine = backend.engine
        self._client = client
        self._group = group
        self._salt = salt
        self.outcomes: dict[str, Any] = {}

    async def ask(self, name: str, state: str, *, number: int = 0, within_s: float = 100.0) -> None:
        """Ask a question, and wait until one more record is with the engine."""
        count = self._engine.output_processor.get_num_unfinished_requests
        came = count()
        ask = Ask(state=state, public_end=len(state), fields=(question(number),), salt=self._salt)
        self._group.start_soon(
            self._client.decide, replace(request(name, remaining_s=within_s), ask=ask)
        )
        await until(lambda: count() > came, within_s=60)

    async def pause(self) -> int:
        """Let no step begin until `go_on`; give the number of the last one."""
        await self._engine.pause_generation(mode="keep", clear_cache=False)
        [step] = await self._engine.collective_rpc(lambda w: scheduler_of(w).current_step)
        return step

    async def go_on(self, *, answered: int) -> None:
        """Let steps begin again, and wait until so many records are answered."""
        await self._engine.resume_generation()
        await until(lambda: len(self.outcomes) >= answered, within_s=60)


@asynccontextmanager
async def asking(backend: Any, folder: Path) -> AsyncIterator[Asking]:
    """Run a broker, and a worker with this backend, for the length of the block."""
    read = backend._read
    async with (
        broker(folder) as running,
        working(running.url, backend),
        connect_engine(running.url, MODEL, source="log1") as client,
        anyio.create_task_group() as group,
    ):
        asked = Asking(backend, client, group, folder.name)

        async def note(request_id: str, *args: Any, **options: Any) -> Any:
            outcome = await read(request_id, *args, **options)
            asked.outcomes[request_id.removesuffix(".0")] = outcome
            return outcome

        backend._read = note
        try:
            yield asked
        finally:
            backend._read = read
