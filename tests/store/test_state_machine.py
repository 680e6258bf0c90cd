from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store.errors import UnknownMatch, VersionConflict
from store.events import Event
from store.log import EventLog, Recorded
from store.memory import MemoryLog
from store.sqlite import SqliteLog, open_log
from store.testing import ended, followed, started, turn

MATCHES = st.sampled_from(["a", "b", "c", "an ended match"])


class Logs(RuleBasedStateMachine):
    """A log in memory and one on disk, step by step beside a list of what was appended."""

    @initialize()
    def open(self) -> None:
        self.folder = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.path = Path(self.folder.name) / "log.db"
        self.memory = MemoryLog()
        self.disk: SqliteLog = open_log(self.path, synchronous="NORMAL")
        self.appended: list[tuple[str, int, Event]] = []

    @property
    def logs(self) -> tuple[EventLog, EventLog]:
        return self.memory, self.disk

    def events(self, match: str) -> list[Event]:
        return [event for where, _, event in self.appended if where == match]

    @rule(match=MATCHES, turns=st.integers(0, 4), end=st.booleans())
    def append(self, match: str, turns: int, end: bool) -> None:
        version = len(self.events(match))
        events: list[Event] = [turn(number) for number in range(turns)]
        if version == 0:
            events.insert(0, started())
        if match == "an ended match" and end:
            events.append(ended())
        if not events:
            return
        for log in self.logs:
            given = self.runner.run(log.append(match, events, expected=version))
            assert given == version + len(events)
        self.appended.extend((match, version + n, event) for n, event in enumerate(events))

    @rule(match=MATCHES, offset=st.integers(-3, 3).filter(bool))
    def conflict(self, match: str, offset: int) -> None:
        version = len(self.events(match))
        for log in self.logs:
            with pytest.raises(VersionConflict) as conflict:
                self.runner.run(log.append(match, [started()], expected=version + offset))
            assert conflict.value.actual == version

    @rule(match=MATCHES, start=st.integers(0, 12), stop=st.none() | st.integers(0, 12))
    def read(self, match: str, start: int, stop: int | None) -> None:
        expected = self.events(match)
        for log in self.logs:
            if not expected:
                with pytest.raises(UnknownMatch):
                    log.read(match, start=start, stop=stop)
            else:
                records = log.read(match, start=start, stop=stop)
                assert [record.event for record in records] == expected[start:stop]
                assert [record.version for record in records] == [*range(len(expected))][start:stop]

    @rule(after=st.integers(0, 12))
    def tail(self, after: int) -> None:
        expected = self.appended[after:]
        if not expected:
            return
        for log in self.logs:
            records = self.runner.run(followed(log, len(expected), after=after))
            assert [(r.match, r.version, r.event) for r in records] == expected
            assert [r.position for r in records] == list(range(after + 1, len(self.appended) + 1))

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.disk.close())
        self.disk = open_log(self.path, synchronous="NORMAL")

    @rule(match=MATCHES)
    def copy(self, match: str) -> None:
        if self.events(match):
            copy = MemoryLog()
            for log in self.logs:
                copy = MemoryLog()
                self.runner.run(copy.restore(match, log.stored(match)))
                assert hashes(copy.read(match)) == hashes(log.read(match))

    @invariant()
    def both_list_the_same_matches(self) -> None:
        order = list(dict.fromkeys(match for match, _, _ in self.appended))
        for log in self.logs:
            summaries = list(log.matches())
            assert [one.match for one in summaries] == order
            assert [one.next_version for one in summaries] == [len(self.events(m)) for m in order]
            assert [len(records) for records in log.scan()] == [len(self.events(m)) for m in order]

    def teardown(self) -> None:
        for log in self.logs:
            self.runner.run(log.close())
        self.runner.close()
        self.folder.cleanup()


def hashes(records: list[Recorded]) -> list[bytes]:
    return [record.hash for record in records]


TestLogs = Logs.TestCase
TestLogs.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestLogsLong = pytest.mark.long(type("TestLogsLong", (Logs.TestCase,), {}))
TestLogsLong.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
