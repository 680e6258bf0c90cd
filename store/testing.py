"""What every event log has to do, as tests; and events to do it with.

class TestMyLog(LogContract):
    @pytest.fixture
    async def log(self):
        ...  # an open, empty log; close it afterwards
"""

# ruff: noqa: D102 -- the name of a test says what it shows
from __future__ import annotations

import anyio
import pytest

from store.errors import BadEvent, CorruptLog, LogUnavailable, UnknownMatch, VersionConflict
from store.events import Event, MatchEnded, MatchStarted, TurnTaken
from store.log import EventLog, Recorded
from store.memory import MemoryLog

_HASH = "0123456789abcdef" * 4


def started(*, seed: int = 1) -> MatchStarted:
    """Give a first event."""
    return MatchStarted(
        game="tictactoe",
        rules_version=1,
        layout_version=1,
        seats=("random", "random"),
        seed=seed,
        fallback="random",
        overflow="stop",
        deadline_s=30.0,
        window=None,
        state_hash=_HASH,
        views=(_HASH, _HASH),
    )


def turn(number: int, *, note: str = "") -> TurnTaken:
    """Give the event of a turn."""
    return TurnTaken(
        seat=number % 2,
        action=f"square {number}",
        how="agent",
        state_hash=_HASH,
        views=(_HASH, _HASH),
        draw=1 / (number + 2),
        note=note,
    )


def ended() -> MatchEnded:
    """Give a last event."""
    return MatchEnded(end="terminated", returns=(1.0, -1.0))


def whole_match(turns: int = 3, *, seed: int = 1) -> list[Event]:
    """Give all events of a match."""
    return [started(seed=seed), *map(turn, range(turns)), ended()]


async def followed(log: EventLog, count: int, *, after: int = 0) -> list[Recorded]:
    """Give the next `count` events of a tail, or fail after ten seconds."""
    records: list[Recorded] = []
    with anyio.fail_after(10):
        async for record in log.tail(after=after):
            records.append(record)
            if len(records) == count:
                break
    return records


class LogContract:
    """The tests. A subclass has a fixture `log`."""

    async def test_append_gives_the_next_version(self, log: EventLog) -> None:
        assert await log.append("m", [started()], expected=0) == 1
        assert await log.append("m", [turn(0), turn(1)], expected=1) == 3

    async def test_what_was_appended_is_read(self, log: EventLog) -> None:
        events = whole_match()
        await log.append("m", events[:2], expected=0)
        await log.append("m", events[2:], expected=2)
        records = log.read("m")
        assert [record.event for record in records] == events
        assert [record.version for record in records] == list(range(5))
        assert [record.position for record in records] == list(range(1, 6))
        assert {record.match for record in records} == {"m"}
        assert len({record.hash for record in records}) == 5
        assert all(record.at_ms > 0 for record in records)

    async def test_read_takes_a_range(self, log: EventLog) -> None:
        await log.append("m", whole_match(), expected=0)
        records = log.read("m")
        assert log.read("m", start=2) == records[2:]
        assert log.read("m", start=1, stop=3) == records[1:3]
        assert log.read("m", stop=1) == records[:1]
        assert log.read("m", start=5) == log.read("m", start=2, stop=2) == []
        assert log.read("m", stop=99) == records

    @pytest.mark.parametrize("expected", [0, 4, 6])
    async def test_another_expected_version_is_a_conflict(
        self, log: EventLog, expected: int
    ) -> None:
        await log.append("m", whole_match(), expected=0)
        with pytest.raises(VersionConflict) as refusal:
            await log.append("m", [turn(9)], expected=expected)
        assert (refusal.value.expected, refusal.value.actual) == (expected, 5)
        assert len(log.read("m")) == 5

    async def test_a_new_match_begins_at_version_0_with_its_start(self, log: EventLog) -> None:
        with pytest.raises(VersionConflict):
            await log.append("m", [turn(0)], expected=3)
        with pytest.raises(BadEvent, match="MatchStarted"):
            await log.append("m", [turn(0)], expected=0)
        with pytest.raises(BadEvent, match="at least one"):
            await log.append("m", [], expected=0)
        assert list(log.matches()) == []

    @pytest.mark.parametrize(
        "event",
        [
            pytest.param(MatchEnded(end="terminated", returns=(float("nan"),)), id="nan"),
            pytest.param(MatchEnded(end="terminated", returns=(float("inf"),)), id="infinity"),
            pytest.param(turn(0, note="\ud800"), id="surrogate"),
        ],
    )
    async def test_what_would_not_read_back_is_refused_whole(
        self, log: EventLog, event: Event
    ) -> None:
        await log.append("m", [started()], expected=0)
        with pytest.raises(BadEvent):
            await log.append("m", [turn(0), event], expected=1)
        assert len(log.read("m")) == 1

    @pytest.mark.parametrize("match", ["", "two\nlines", "\ud800", "x" * 201])
    async def test_a_match_needs_a_printable_id(self, log: EventLog, match: str) -> None:
        with pytest.raises(BadEvent):
            await log.append(match, [started()], expected=0)

    async def test_any_text_comes_back(self, log: EventLog) -> None:
        note = 'ü 漢 🂡 \0 \u2028 " \\ \n'
        await log.append("Königin 漢", [started(), turn(0, note=note)], expected=0)
        assert log.read("Königin 漢")[1].event == turn(0, note=note)

    async def test_an_unknown_match_is_named(self, log: EventLog) -> None:
        with pytest.raises(UnknownMatch, match="udc80"):
            log.read("m\udc80")
        with pytest.raises(UnknownMatch, match="nobody"):
            log.read("nobody")
        with pytest.raises(UnknownMatch, match="nobody"):
            log.stored("nobody")

    async def test_matches_come_in_order_of_their_first_event(self, log: EventLog) -> None:
        await log.append("b", [started()], expected=0)
        await log.append("a", whole_match(), expected=0)
        await log.append("b", [turn(0)], expected=1)
        both = list(log.matches())
        assert [(one.match, one.game, one.next_version, one.ended) for one in both] == [
            ("b", "tictactoe", 2, None),
            ("a", "tictactoe", 5, ended()),
        ]
        assert list(log.matches(ended=False)) == both[:1]
        assert list(log.matches(ended=True)) == both[1:]
        assert list(log.scan()) == [log.read("b"), log.read("a")]

    async def test_an_ended_match_takes_late_events_and_stays_ended(self, log: EventLog) -> None:
        await log.append("m", whole_match(), expected=0)
        assert await log.append("m", [turn(9)], expected=5) == 6
        assert [one.ended for one in log.matches()] == [ended()]

    async def test_a_race_has_one_winner(self, log: EventLog) -> None:
        await log.append("m", [started(), *map(turn, range(6))], expected=0)
        outcomes: list[int | VersionConflict] = []

        async def contend(number: int) -> None:
            try:
                outcomes.append(await log.append("m", [turn(number)], expected=7))
            except VersionConflict as conflict:
                outcomes.append(conflict)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(contend, number)
        conflicts = [one for one in outcomes if isinstance(one, VersionConflict)]
        assert [one for one in outcomes if isinstance(one, int)] == [8]
        assert [(one.match, one.expected, one.actual) for one in conflicts] == [("m", 7, 8)] * 19
        assert all("next version is 8" in str(one) for one in conflicts)
        assert len(log.read("m")) == 8

    async def test_a_tail_gives_everything_once_in_order(self, log: EventLog) -> None:
        async def play(match: str) -> None:
            for version, event in enumerate(whole_match(20)):
                await log.append(match, [event], expected=version)

        records: list[Recorded] = []
        await play("before")
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(play, f"m{number}")
            records = await followed(log, 9 * 22)
        assert [record.position for record in records] == list(range(1, 9 * 22 + 1))
        by_match = {one.match: log.read(one.match) for one in log.matches()}
        for match, whole in by_match.items():
            assert [record for record in records if record.match == match] == whole
        assert await followed(log, 3, after=100) == records[100:103]

    async def test_a_tail_ends_with_its_log(self, log: EventLog) -> None:
        await log.append("m", [started()], expected=0)
        seen: list[Recorded] = []

        async def follow() -> None:
            async for record in log.tail():
                seen.append(record)
                first.set()

        first = anyio.Event()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await first.wait()
                await log.close()
        assert len(seen) == 1

    async def test_a_closed_log_takes_nothing(self, log: EventLog) -> None:
        await log.append("m", [started()], expected=0)
        await log.close()
        with pytest.raises(LogUnavailable):
            await log.append("m", [turn(0)], expected=1)
        await log.close()

    async def test_a_match_moves_to_another_log_unchanged(self, log: EventLog) -> None:
        await log.append("m", whole_match(), expected=0)
        there = MemoryLog()
        stored = log.stored("m")
        await there.restore("m", stored[:2])
        await there.restore("m", stored[2:])
        assert there.stored("m") == stored
        assert there.read("m") == log.read("m")
        await log.append("n", [started(seed=2)], expected=0)
        with pytest.raises(CorruptLog) as damage:
            await log.restore("n", stored[1:])
        assert (damage.value.match, damage.value.version) == ("n", 1)
        with pytest.raises(VersionConflict):
            await log.restore("m", stored)
        assert len(log.read("n")) == 1

    async def test_a_log_has_a_name_of_its_own(self, log: EventLog) -> None:
        assert log.log_id == log.log_id != MemoryLog().log_id
        assert log.log_id.isalnum()

    async def test_a_turn_costs_the_same_late_in_a_match(self, log: EventLog) -> None:
        await log.append("m", [started()], expected=0)
        for version in range(1, 500):
            await log.append("m", [turn(version % 10)], expected=version)
        sizes = [len(event.payload) for event in log.stored("m")]
        assert sum(sizes[1:101]) == pytest.approx(sum(sizes[-100:]), rel=0.05)
