"""What becomes of a match whose agent raises, hangs, or gives what is no action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from engine.errors import EngineFailed, NoWorker
from games import load_game
from runtime.agents import Act, Agent, Turn
from runtime.errors import BadInput
from runtime.replay import replay_match
from runtime.table import Terms
from store.errors import LogUnavailable
from store.events import DecisionFailed, MatchPaused
from store.memory import MemoryLog
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import MATCH, events_of, kinds, only, play_one, resume_one, turns
from tests.support.toys import Diary

TICTACTOE = load_game("tictactoe")
KUHN = load_game("kuhn_poker")

RANDOM = Terms(fallback="random")


class Faulty(Agent):
    """Does `what` in its second turn, and else takes the first option."""

    deadline_s = 60.0

    def __init__(self, what: Callable[[Turn], Any]) -> None:
        self._what = what

    async def act(self, turn: Turn) -> Act:
        act = Act(turn.options[0].id)
        if turn.index != 1:
            return act
        result = self._what(turn)
        return await result if hasattr(result, "__await__") else result


class Hanging(Faulty):
    deadline_s = 0.01


def raising(error: Exception) -> Agent:
    def fault(turn: Turn) -> Act:
        raise error

    return Faulty(fault)


async def in_a_group(turn: Turn) -> Act:
    async with anyio.create_task_group():
        raise KeyError("inner")


FAULTS: dict[str, tuple[Agent, str]] = {
    "raises": (raising(ValueError("a bad\nmove")), "it raised ValueError: a bad move"),
    "surrogate": (raising(ValueError("\ud800")), r"it raised ValueError: \ud800"),
    "long": (raising(ValueError("x" * 9999)), f"it raised ValueError: {'x' * 200}"),
    "group": (Faulty(in_a_group), "it raised KeyError: 'inner'"),
    "hangs": (Hanging(lambda _: anyio.sleep_forever()), "it gave no action within 0.01 s"),
    "nothing": (Faulty(lambda _: None), "it gave None, which is no Act"),
    "label alone": (Faulty(lambda _: "top"), "it gave 'top', which is no Act"),
    "no label": (Faulty(lambda _: Act(None)), "it gave Act(action=None"),  # type: ignore
    "draw": (Faulty(lambda _: Act("top", float("nan"))), "it gave Act(action="),
    "draw above": (Faulty(lambda _: Act("top", 1.0)), "it gave Act(action="),
}


@pytest.mark.parametrize(("agent", "why"), FAULTS.values(), ids=FAULTS)
async def test_fault_is_recorded_and_the_fallback_follows(agent: Agent, why: str) -> None:
    log, result = await play_one(TICTACTOE, [agent, "random"], terms=RANDOM)
    assert result.end == "terminated"
    [fallen] = [turn for turn in turns(events_of(log)) if turn.how == "fallback"]
    assert fallen.note.startswith(f"runtime/agent_failed: {why}")
    assert len(fallen.note) < 260
    assert fallen.draw is not None
    assert not replay_match(log.read(MATCH)).differences


async def test_fault_pauses_a_match_that_says_so_and_a_sound_agent_goes_on() -> None:
    log, result = await play_one(TICTACTOE, [raising(ValueError("odd")), "random"])
    assert result.end == "paused"
    reason = "runtime/agent_failed: it raised ValueError: odd"
    assert only(events_of(log), MatchPaused).reason == result.reason == reason
    again = await resume_one(log, TICTACTOE, [Faulty(lambda t: Act(t.options[0].id)), "random"])
    assert again.end == "terminated"
    assert not replay_match(log.read(MATCH)).differences


async def test_fault_takes_the_games_pass_or_the_action_before() -> None:
    log, _ = await play_one(Diary(), [raising(ValueError("odd"))], terms=Terms(fallback="previous"))
    second = turns(events_of(log))[1]
    assert (second.how, second.action) == ("fallback", "rest")

    class Broken(Agent):
        async def act(self, turn: Turn) -> Act:
            raise ValueError

    log, _ = await play_one(KUHN, [Broken(), Broken()], terms=Terms(fallback="pass"))
    assert {(turn.how, turn.action) for turn in turns(events_of(log))} == {("fallback", "pass")}


async def test_fault_after_an_illegal_label_falls_back_too() -> None:
    class Worse(Agent):
        async def act(self, turn: Turn) -> Act:
            if turn.refused is not None:
                raise ValueError("lost")
            return Act("nowhere")

    log, _ = await play_one(TICTACTOE, [Worse(), "random"], terms=RANDOM)
    assert kinds(events_of(log))[1:3] == ["action_refused", "turn_taken"]
    assert turns(events_of(log))[0].note == "runtime/agent_failed: it raised ValueError: lost"
    assert not replay_match(log.read(MATCH)).differences


class Asking(Agent):
    """Asks, and may do something with the answer."""

    asks = True
    deadline_s = 0.05

    def __init__(self, *, after: Callable[[], Any] = lambda: None) -> None:
        self._after = after

    async def act(self, turn: Turn) -> Act:
        await turn.ask(turn.questions())
        result = self._after()
        if result is not None:
            await result
        return Act(turn.options[0].id)


class Slow(DirectEngine):
    """Takes longer than its agent may think."""

    async def decide(self, request: Any) -> Any:
        await anyio.sleep(0.1)
        return await super().decide(request)


async def test_time_in_which_it_waits_for_a_model_is_not_the_agents() -> None:
    log, result = await play_one(KUHN, [Asking(), Asking()], engine=Slow())
    assert result.end == "terminated"
    assert {turn.how for turn in turns(events_of(log))} == {"decision"}


async def test_agent_that_hangs_after_its_answer_is_given_up() -> None:
    agents = [Asking(after=anyio.sleep_forever), Asking(after=anyio.sleep_forever)]
    log, result = await play_one(KUHN, agents, engine=DirectEngine(), terms=RANDOM)
    assert result.end == "terminated"
    events = events_of(log)
    assert kinds(events).count("decision_answered") == len(turns(events)) > 0
    assert all("no action within" in turn.note for turn in turns(events))
    assert not replay_match(log.read(MATCH)).differences


async def test_agent_that_raises_after_its_answer_falls_back() -> None:
    def fault() -> None:
        raise ValueError("odd")

    log, _ = await play_one(
        KUHN, [Asking(after=fault), Asking()], engine=DirectEngine(), terms=RANDOM
    )
    first = turns(events_of(log))[0]
    assert (first.how, first.decision) == ("fallback", None)
    assert not replay_match(log.read(MATCH)).differences


async def test_failure_of_the_engine_inside_a_group_is_still_the_engines() -> None:
    class Grouped(Agent):
        asks = True

        async def act(self, turn: Turn) -> Act:
            async with anyio.create_task_group() as group:
                group.start_soon(turn.ask, turn.questions())
            return Act(turn.options[0].id)

    engine = FailingEngine(NoWorker("none"))
    log, _ = await play_one(KUHN, [Grouped(), Grouped()], engine=engine, terms=RANDOM)
    failed = [event for event in events_of(log) if isinstance(event, DecisionFailed)]
    assert len(failed) == len(turns(events_of(log)))
    assert turns(events_of(log))[0].note == "engine/no_worker: none"


async def test_what_is_no_fault_of_the_agent_stops_the_run() -> None:
    for error in (BadInput("the file"), LogUnavailable("the disk")):
        with pytest.raises(type(error), match=str(error)):
            await play_one(TICTACTOE, [raising(error), "random"], terms=RANDOM)


async def test_agent_that_raises_an_engines_error_falls_back_by_it() -> None:
    log, _ = await play_one(TICTACTOE, [raising(EngineFailed("x")), "random"], terms=RANDOM)
    [fallen] = [turn for turn in turns(events_of(log)) if turn.how == "fallback"]
    assert fallen.note == "engine/failed: x"


async def test_faults_are_the_same_again() -> None:
    logs = [
        (await play_one(TICTACTOE, [raising(ValueError("odd")), "random"], terms=RANDOM))[0]
        for _ in range(2)
    ]
    assert events_of(logs[0]) == events_of(logs[1])
    assert isinstance(logs[0], MemoryLog)
