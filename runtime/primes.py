"""While one seat is at its turn, the states that others will be asked about are read ahead."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.client import Engine
from engine.contract import Prime
from engine.errors import EngineError
from runtime.journal import Journal

log = logging.getLogger(__name__)


class Primes:
    """Sends what one match is likely to ask next, once a turn; nothing depends on it."""

    def __init__(self, journal: Journal, engines: Sequence[Engine | None]) -> None:
        """Make it with what each seat's agent asks; None where it asks nothing."""
        self._journal = journal
        self._engines = engines
        self._sent = -1  # turn

    async def send(self) -> None:
        """Have the view of the next seat of each model read.

        Call it when the turns before are in the log. Who acts and asks now reads for its own model.
        """
        fold = self._journal.fold
        if fold.turn == self._sent:
            return
        self._sent = fold.turn
        actor = fold.state.actor or 0
        seats = [(actor + ahead) % len(self._engines) for ahead in range(len(self._engines))]
        done: set[str] = set()
        for seat in seats:
            engine = self._engines[seat]
            if engine is None or engine.model.hash in done:
                continue
            done.add(engine.model.hash)
            if seat == actor:
                continue
            view = fold.state.view(seat)
            try:
                await engine.prime(
                    Prime(affinity=fold.match, state=view.text, public_end=len(view.public))
                )
            except EngineError as error:
                log.info("not read ahead", extra={"match": fold.match, "why": str(error)})
