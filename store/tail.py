"""How a tail waits for the next event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel

from store.log import Recorded

POLL_S = 0.1
"""Between two looks for what another process appended."""


class Tails:
    """Everybody who follows one log."""

    def __init__(self) -> None:
        self._appended = anyio.Event()
        self._closed = False

    def wake(self) -> None:
        """Say that something was appended."""
        appended, self._appended = self._appended, anyio.Event()
        appended.set()

    def close(self) -> None:
        """End every tail."""
        self._closed = True
        self.wake()

    async def follow(
        self, page: Callable[[int], list[Recorded]], after: int
    ) -> AsyncIterator[Recorded]:
        """Give what `page` finds behind a position, again and again."""
        while not self._closed:
            appended = self._appended  # taken before the look, so that nothing falls in between
            records = page(after)
            for record in records:
                yield record
            if records:
                after = records[-1].position
                await anyio.lowlevel.checkpoint()
            else:
                with anyio.move_on_after(POLL_S):
                    await appended.wait()
