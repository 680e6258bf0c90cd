"""Which partitions a worker serves: an equal share of them, claimed by lease.

Two workers on one partition for a moment do no harm, since an answer counts once; a partition
keeps the requests of a match on the worker that has its states read.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from engine.errors import QueueUnavailable
from engine.leases import Leases
from engine.streams import LEASE_S, PARTITIONS

log = logging.getLogger(__name__)

_RENEW_S: Final = LEASE_S / 3
_WORKER: Final = "w-"


class Claims:
    """The partitions of one worker.

    Attributes:
        held: The partitions that it serves now.
        changed: Set when `held` changes, then replaced.
    """

    def __init__(self, leases: Leases, worker: str) -> None:
        self.held: set[int] = set()
        self.changed = anyio.Event()
        self._leases = leases
        self._name = f"{_WORKER}{worker}"

    async def keep(self) -> None:
        """Claim a share and go on to hold it, for ever."""
        while True:
            try:
                held = await self._look()
            except QueueUnavailable as error:
                log.info("leases not renewed", extra={"why": str(error)})
            else:
                if held != self.held:
                    self.held = held
                    changed, self.changed = self.changed, anyio.Event()
                    changed.set()
            await anyio.sleep(_RENEW_S)

    async def give_up(self) -> None:
        """Let the others have everything at once."""
        held, self.held = sorted(self.held), set()
        try:
            for name in (self._name, *map(str, held)):
                await self._leases.give_up(name)
        except QueueUnavailable as error:
            log.info("leases not given up", extra={"why": str(error)})  # they lapse

    async def _look(self) -> set[int]:
        """Give what is to be served from now on; one that was lost and taken again never stops."""
        await self._leases.show(self._name)
        names = await self._leases.names()
        workers = sorted({self._name, *(name for name in names if name.startswith(_WORKER))})
        share, more = divmod(PARTITIONS, len(workers))
        quota = share + (workers.index(self._name) < more)
        held: set[int] = set()
        for partition in sorted(self.held):
            if not await self._leases.renew(str(partition)):
                continue  # it lapsed while this worker stood still
            if len(held) < quota:
                held.add(partition)
            else:
                await self._leases.give_up(str(partition))
        for partition in range(PARTITIONS):
            if len(held) == quota:
                break
            if str(partition) not in names and await self._leases.take(str(partition)):
                held.add(partition)
        return held
