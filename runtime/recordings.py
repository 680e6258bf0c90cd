"""Recorded matches, whether a log or a portable file has them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from store.errors import CorruptLog, UnknownMatch
from store.export import SUFFIXES, count_export, read_export
from store.log import EventLog, Recorded
from store.sqlite import open_log


class Lost(NamedTuple):
    """A match that cannot be read; after one that is `last` no other can be found."""

    damage: CorruptLog
    last: bool


class Recordings:
    """The matches of one file, in order.

    Attributes:
        most_at_once: How many matches one look should take: a log finds any match at once, a
            portable file has to be read up to it.
    """

    def __init__(self, path: Path, log: EventLog | None) -> None:
        self._path = path
        self._log = log
        self._last: list[Recorded] = []
        self.most_at_once = sys.maxsize if log is None else 512

    def count(self) -> int:
        """Give how many there are."""
        return count_export(self._path) if self._log is None else self._log.count()

    def read(self, match: str, *, start: int = 0, stop: int | None = None) -> list[Recorded]:
        """Give versions start <= v < stop of one match.

        Raises:
            UnknownMatch: There is no such match.
            CorruptLog: It is damaged.
        """
        if self._log is not None:
            return self._log.read(match, start=start, stop=stop)
        if not self._last or self._last[0].match != match:
            self._last = self._find(match)
        return self._last[start:stop]

    def _find(self, match: str) -> list[Recorded]:
        for recorded in read_export(self._path):
            if recorded[0].match == match:
                return recorded
        raise UnknownMatch(f"{self._path} has no match {match!r}; name one that it has")

    def all(self) -> Iterator[list[Recorded] | Lost]:
        """Give every match; see `range`."""
        return self.range(0, sys.maxsize)

    def range(self, start: int, stop: int) -> Iterator[list[Recorded] | Lost]:
        """Give matches start <= n < stop, and for each that is damaged the damage."""
        if self._log is None:
            try:
                yield from read_export(self._path, start=start, stop=stop)
            except CorruptLog as damage:  # where the next match starts is not known
                yield Lost(damage, last=True)
            return
        whole = start
        try:
            for recorded in self._log.scan(start=start, stop=stop):
                yield recorded
                whole += 1
        except CorruptLog:  # the fast way ends there; go on one by one
            yield from self._one_by_one(self._log, whole, stop)

    def _one_by_one(self, log: EventLog, start: int, stop: int) -> Iterator[list[Recorded] | Lost]:
        try:
            for summary in islice(log.matches(), start, stop):
                try:
                    yield log.read(summary.match)
                except CorruptLog as damage:
                    yield Lost(damage, last=False)
        except CorruptLog as damage:  # of the list itself: what comes after cannot be found
            yield Lost(damage, last=True)


@asynccontextmanager
async def open_recordings(path: Path) -> AsyncIterator[Recordings]:
    """Open a log to read, or a file whose name ends in `.jsonl` or `.jsonl.zst`.

    Raises:
        StoreError: The file cannot be read at all.
    """
    if path.name.endswith(SUFFIXES):
        yield Recordings(path, None)
        return
    log = open_log(path, read_only=True)
    try:
        yield Recordings(path, log)
    finally:
        await log.close()
