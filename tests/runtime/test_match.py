from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from engine.contract import DecisionReply, DecisionRequest
from engine.errors import (
    BadRequest,
    DecisionExpired,
    EngineError,
    EngineFailed,
    NoWorker,
)
from games import Option, View, load_game
from games.errors import ConformanceError
from runtime import outbox
from runtime.agents import Act, Agent, Turn
from runtime.errors import CannotPlay
from runtime.replay import replay_match
from runtime.requests import decision_id
from runtime.table import Terms
from store.events import (
    ActionRefused,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    Event,
    MatchEnded,
    MatchPaused,
    MatchStarted,
)
from store.memory import MemoryLog
from tests.support.engines import AlteringEngine, DirectEngine, FailingEngine, SilentEngine
from tests.support.matches import (
    MATCH,
    cut,
    events_of,
    kinds,
    only,
    play_one,
    resume_one,
    timeless,
    turns,
)
from tests.support.oddities import Odd, OddGame
from tests.support.toys import Diary, DiaryState, Grid

TICTACTOE = load_game("tictactoe")
KUHN = load_game("kuhn_poker")


class Watched(MemoryLog):
    """Remembers what was appended together."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []

    async def append(self, match: str, events: Sequence[Event], *, expected: int) -> int:
        self.appends.append(kinds(events))
        return await super().append(match, events, expected=expected)


async def test_first_event_has_all_that_a_replay_needs() -> None:
    engine = DirectEngine()
    log, result = await play_one(
        KUHN,
        ["random", "decision:temperature=0.7"],
        seed=5,
        engine=engine,
        terms=Terms(fallback="random", deadline_s=7),
    )
    started = events_of(log)[0]
    assert isinstance(started, MatchStarted)
    assert (started.game, started.seed, started.window) == ("kuhn_poker", 5, engine.model.window)
    assert started.seats == ("random", "decision:temperature=0.7")
    assert (started.fallback, started.deadline_s, started.overflow) == ("random", 7, "stop")
    ended = only(events_of(log), MatchEnded)
    assert result.returns == ended.returns
    assert result.turns == kinds(events_of(log)).count("turn_taken") + 2


async def test_rules_are_appended_with_the_turn_and_the_next_request_before_them() -> None:
    log = Watched()
    await play_one(KUHN, ["decision", "decision"], engine=DirectEngine(), log=log)
    first, *middle, last = log.appends
    assert first == ["match_started", "chance_drawn", "chance_drawn", "decision_requested"]
    assert all(
        append == ["decision_answered", "turn_taken", "decision_requested"] for append in middle
    )
    assert last == ["decision_answered", "turn_taken", "match_ended"]


async def test_each_turn_without_a_decision_is_appended_by_itself() -> None:
    log = Watched()
    await play_one(TICTACTOE, ["random", "random"], log=log)
    assert log.appends[0] == ["match_started"]
    assert all(append == ["turn_taken"] for append in log.appends[1:-1])
    assert log.appends[-1][-1] == "match_ended"


async def test_request_is_in_the_log_before_it_is_sent() -> None:
    log = MemoryLog()

    def look(request: DecisionRequest) -> None:
        last = log.read(MATCH)[-1]
        assert isinstance(last.event, DecisionRequested)
        assert request.id == last.event.decision == decision_id(MATCH, last.version)
        assert (request.source, request.affinity, request.attempt) == (log.log_id, MATCH, 1)

    engine = DirectEngine(on_request=look)
    await play_one(TICTACTOE, ["decision", "random"], engine=engine, log=log)
    assert len(engine.requests) >= 3


async def test_growth_of_the_log_does_not_depend_on_the_length_of_the_match() -> None:
    log, _ = await play_one(Diary(days=80), ["decision"], engine=DirectEngine())
    sizes = [len(stored.payload) for stored in log.stored(MATCH)]
    assert sum(sizes[-31:-1]) < sum(sizes[1:31]) * 1.1


async def test_single_legal_action_is_forced_and_not_asked() -> None:
    agents = ["decision:temperature=1"] * 2
    seed = 0
    log, result = await play_one(TICTACTOE, agents, engine=DirectEngine(), seed=seed)
    while result.turns < 9:  # until a board is full
        seed += 1
        log, result = await play_one(TICTACTOE, agents, engine=DirectEngine(), seed=seed)
    last = turns(events_of(log))[-1]
    assert result.turns == 9
    assert (last.how, last.decision, last.draw) == ("forced", None, None)
    assert kinds(events_of(log)).count("decision_requested") == 8


async def test_no_legal_action_is_the_games_fault() -> None:
    class Stuck(DiaryState, frozen=True):
        def options(self) -> tuple[()]:
            return ()

    game = Diary()
    game._state = Stuck(3, 10)
    with pytest.raises(ConformanceError, match="diary, seed 1, turn 0"):
        await play_one(game, ["random"])


class Forgetful(Odd):
    def view(self, seat: int) -> View:
        return View("\n".join(self.state.view(seat).public.splitlines()[-9:]))


class Edited(Odd):
    def view(self, seat: int) -> View:
        public = self.state.view(seat).public
        return View(f"{public.count(': ')} moves\n{public}")


class Doubled(Odd):
    def options(self) -> tuple[Option, ...]:
        return (*self.state.options(), *self.state.options()[:1])


class Crowded(Odd):
    def options(self) -> tuple[Option, ...]:
        return tuple(Option(f"cell {number}") for number in range(300))


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Crowded, "turn 0: seat 0 is offered 300 options.* 9 are the most"),
        (Forgetful, "turn 2: seat 0 acted, and the public text lost or changed"),
        (Edited, "turn 0: seat 0 acted, and the public text lost or changed"),
        (Doubled, "turn 0: seat 0 is offered a label twice"),
    ],
)
async def test_a_game_that_breaks_a_law_while_it_is_played_is_refused(
    odd: type[Odd], message: str
) -> None:
    with pytest.raises(ConformanceError, match=f"tictactoe, seed 1, {message}.*ostinato check"):
        await play_one(OddGame(TICTACTOE, odd), ["random", "random"])


async def test_seed_decides_and_nothing_else() -> None:
    runs = [await play_one(KUHN, ["random", "random"], seed=seed) for seed in (1, 1, 2)]
    first, again, other = (events_of(log) for log, _ in runs)
    assert first == again
    assert first != other


async def test_temperature_draws_and_records_what_it_drew() -> None:
    log, _ = await play_one(
        TICTACTOE, ["decision:temperature=1", "decision"], engine=DirectEngine()
    )
    asked = [turn for turn in turns(events_of(log)) if turn.how == "decision"]
    assert all((turn.draw is not None) == (turn.seat == 0) for turn in asked)
    assert len({turn.draw for turn in asked if turn.seat == 0}) > 1


async def test_factored_action_is_asked_part_by_part() -> None:
    engine = DirectEngine()
    log, _ = await play_one(
        Grid(turns=2), ["decision:temperature=1", "decision:temperature=1"], engine=engine
    )
    events = events_of(log)
    requests = [event for event in events if isinstance(event, DecisionRequested)]
    assert [request.part for request in requests] == [0, 1, 0, 1]
    row, column = requests[:2]
    assert [question.id for question in row.questions] == ["cell_row", "ahead"]
    assert [question.id for question in column.questions] == ["cell_column"]
    assert len(row.questions[0].options) == len(column.questions[0].options) == 20
    [settled] = column.chosen
    assert f"Already chosen: {settled}." in column.questions[0].instructions
    assert column.draw is not None
    first = turns(events)[0]
    assert first.decision == column.decision
    assert f"row {first.action.split('/')[0]}" == settled
    assert first.draw not in (None, column.draw)


async def test_part_without_a_choice_is_not_asked() -> None:
    engine = DirectEngine()
    log, result = await play_one(Grid(size=2, turns=4), ["decision", "decision"], engine=engine)
    # Two cells in one row, or one cell in each of two: one question is enough. The last is forced.
    assert result.turns == 4
    assert len(engine.requests) < 2 * 3
    assert not replay_match(log.read(MATCH), game=Grid(size=2, turns=4)).differences


FAULTS = [NoWorker("none"), EngineFailed("broken"), DecisionExpired("late"), BadRequest("odd")]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: error.code)
async def test_random_fallback_is_seeded_and_says_why(error: EngineError) -> None:
    logs = [
        (
            await play_one(
                TICTACTOE,
                ["decision", "decision"],
                engine=FailingEngine(error),
                terms=Terms(fallback="random"),
            )
        )[0]
        for _ in range(2)
    ]
    events = events_of(logs[0])
    assert events == events_of(logs[1])
    failed = [event for event in events if isinstance(event, DecisionFailed)]
    fallen = [turn for turn in turns(events) if turn.how == "fallback"]
    assert len(failed) == len(fallen) > 0
    assert failed[0].code == error.code
    assert all(error.code in turn.note and turn.draw is not None for turn in fallen)
    assert not replay_match(logs[0].read(MATCH)).differences


async def test_pass_fallback_takes_the_games_pass() -> None:
    log, _ = await play_one(
        KUHN,
        ["decision", "decision"],
        engine=FailingEngine(NoWorker("none")),
        terms=Terms(fallback="pass"),
    )
    assert [(turn.action, turn.how) for turn in turns(events_of(log))] == [("pass", "fallback")] * 2
    assert not replay_match(log.read(MATCH)).differences


async def test_previous_fallback_repeats_what_is_still_legal() -> None:
    engine = FailingEngine(NoWorker("none"), failing=lambda number: number > 0)
    log, _ = await play_one(Diary(), ["decision"], engine=engine, terms=Terms(fallback="previous"))
    taken = turns(events_of(log))
    assert [turn.how for turn in taken] == ["decision"] + ["fallback"] * 5
    assert len({turn.action for turn in taken}) == 1
    assert not replay_match(log.read(MATCH), game=Diary()).differences


@pytest.mark.parametrize("fallback", ["pass", "previous"])
async def test_fallback_that_is_not_possible_pauses_and_says_so(fallback: Any) -> None:
    log, result = await play_one(
        TICTACTOE,
        ["decision", "decision"],
        engine=FailingEngine(NoWorker("none")),
        terms=Terms(fallback=fallback),
    )
    assert result.end == "paused"
    assert "engine/no_worker" in result.reason
    assert f"fallback '{fallback}' has no legal action here" in result.reason
    assert kinds(events_of(log))[-2:] == ["decision_failed", "match_paused"]


async def test_paused_match_asks_anew_when_it_is_resumed() -> None:
    agents = ["decision", "random"]
    engine = FailingEngine(EngineFailed("broken"), failing=lambda number: number == 2)
    log, result = await play_one(TICTACTOE, agents, engine=engine)
    assert result.end == "paused"
    assert result.reason == "engine/failed: broken"
    paused = only(events_of(log), MatchPaused)
    assert paused.reason == result.reason
    again = await resume_one(log, TICTACTOE, agents, engine=DirectEngine())
    assert again.end == "terminated"
    undisturbed, _ = await play_one(TICTACTOE, agents, engine=DirectEngine())
    actions = [turn.action for turn in turns(events_of(log))]
    assert actions == [turn.action for turn in turns(events_of(undisturbed))]
    assert not replay_match(log.read(MATCH)).differences


async def test_engine_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "GRACE_S", 0.0)
    log, result = await play_one(
        KUHN,
        ["decision", "decision"],
        engine=SilentEngine(),
        terms=Terms(fallback="pass", deadline_s=0.01),
    )
    assert result.end == "terminated"
    failed = [event for event in events_of(log) if isinstance(event, DecisionFailed)]
    assert {event.code for event in failed} == {"engine/expired"}


def _without_last(reply: DecisionReply) -> DecisionReply:
    [answer] = reply.answers
    short = msgspec.structs.replace(answer, option_ids=answer.option_ids[:-1])
    return msgspec.structs.replace(reply, answers=(short,))


def _with(first: float) -> Any:
    def alter(reply: DecisionReply) -> DecisionReply:
        [answer] = reply.answers
        probabilities = (first, *answer.probabilities[1:])
        other = msgspec.structs.replace(answer, probabilities=probabilities)
        return msgspec.structs.replace(reply, answers=(other,))

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        _without_last,
        _with(float("nan")),
        _with(2.0),
        _with(-0.1),
        lambda reply: msgspec.structs.replace(reply, answers=()),
    ],
)
async def test_reply_that_does_not_fit_is_a_failure(alter: Any) -> None:
    log, result = await play_one(TICTACTOE, ["decision", "random"], engine=AlteringEngine(alter))
    assert result.end == "paused"
    assert only(events_of(log), DecisionFailed).code == "engine/failed"


async def test_probabilities_are_recorded_in_the_games_order() -> None:
    seen: list[dict[str, float]] = []

    def keep(reply: DecisionReply) -> DecisionReply:
        [answer] = reply.answers
        seen.append(dict(zip(answer.option_ids, answer.probabilities, strict=True)))
        return reply

    log, _ = await play_one(TICTACTOE, ["decision", "random"], engine=AlteringEngine(keep))
    events = events_of(log)
    asked = next(event for event in events if isinstance(event, DecisionRequested))
    answered = next(event for event in events if isinstance(event, DecisionAnswered))
    labels = [option.id for option in asked.questions[0].options]
    assert labels != sorted(labels)
    assert answered.answers[0].probabilities == tuple(seen[0][label] for label in labels)


class Stubborn(Agent):
    """Names an illegal action `times` times, then the first legal one."""

    asks = False

    def __init__(self, times: int, action: str = "nowhere") -> None:
        self._left = times
        self._action = action
        self.heard: list[str | None] = []

    async def act(self, turn: Turn) -> Act:
        self.heard.append(turn.refused)
        if self._left:
            self._left -= 1
            return Act(self._action)
        return Act(turn.options[0].id)


async def test_illegal_action_is_recorded_and_may_be_repaired_once() -> None:
    agent = Stubborn(1)
    log, result = await play_one(TICTACTOE, [agent, "random"])
    refused = only(events_of(log), ActionRefused)
    assert (refused.seat, refused.action) == (0, "nowhere")
    assert agent.heard[:2] == [None, refused.message]
    assert agent.heard[2:] == [None] * len(agent.heard[2:])
    assert result.end == "terminated"
    assert turns(events_of(log))[0].action == "top-left"
    assert not replay_match(log.read(MATCH)).differences


async def test_second_illegal_action_falls_back() -> None:
    log, _ = await play_one(TICTACTOE, [Stubborn(2), "random"], terms=Terms(fallback="random"))
    assert kinds(events_of(log))[1:4] == ["action_refused", "action_refused", "turn_taken"]
    first = turns(events_of(log))[0]
    assert (first.how, first.note) == ("fallback", "2 illegal actions")


async def test_illegal_action_that_is_no_valid_text_is_still_recorded() -> None:
    log, result = await play_one(TICTACTOE, [Stubborn(1, "\ud800"), "random"])
    assert only(events_of(log), ActionRefused).action == "\\ud800"
    assert result.end == "terminated"


class Cautious(Agent):
    """Asks, and has an answer of its own when there is none."""

    asks = True

    async def act(self, turn: Turn) -> Act:
        try:
            await turn.ask(turn.questions())
        except EngineError:
            return Act(turn.options[-1].id)
        return Act(turn.options[0].id)


async def test_agent_may_act_without_its_answer() -> None:
    log, result = await play_one(
        TICTACTOE,
        [Cautious(), Cautious()],
        engine=FailingEngine(NoWorker("none"), failing=lambda number: number == 0),
    )
    first, second, *_ = turns(events_of(log))
    assert (first.how, first.action, first.decision) == ("agent", "bottom-right", None)
    assert (second.how, second.action) == ("decision", "top-left")
    assert result.end == "terminated"
    assert not replay_match(log.read(MATCH)).differences


async def test_agent_that_did_not_say_so_cannot_ask() -> None:
    agent = Cautious()
    agent.asks = False
    with pytest.raises(CannotPlay, match="declare `asks`"):
        await play_one(TICTACTOE, [agent, "random"])


class Impatient(Agent):
    """Gives up waiting, and acts."""

    asks = True

    async def act(self, turn: Turn) -> Act:
        with anyio.move_on_after(0):
            await turn.ask(turn.questions())
        return Act(turn.options[0].id)


class Persistent(Agent):
    """Asks a second time when the first fails."""

    asks = True

    async def act(self, turn: Turn) -> Act:
        try:
            await turn.ask(turn.questions())
        except EngineError:
            await turn.ask(turn.questions())
        return Act(turn.options[0].id)


async def test_agent_may_stop_waiting_and_the_decision_counts_as_expired() -> None:
    log, _ = await play_one(KUHN, [Impatient(), Impatient()], engine=SilentEngine())
    tags = kinds(events_of(log))
    assert tags.count("decision_requested") == tags.count("decision_failed") > 0
    assert {turn.how for turn in turns(events_of(log))} == {"agent"}
    assert not replay_match(log.read(MATCH)).differences
    for length in range(1, len(tags)):
        if tags[length - 1] != "decision_failed":  # it is appended with the turn behind it
            shorter = await cut(log, length)
            await resume_one(shorter, KUHN, [Impatient(), Impatient()], engine=SilentEngine())
            assert events_of(shorter) == events_of(log)


async def test_agent_may_ask_again() -> None:
    def engine() -> DirectEngine:
        return FailingEngine(NoWorker("none"), failing=lambda number: number == 0)

    agents = [Persistent(), Persistent()]
    log, _ = await play_one(KUHN, agents, engine=engine())
    tags = kinds(events_of(log))
    assert tags[3:7] == [
        "decision_requested",
        "decision_failed",
        "decision_requested",
        "decision_answered",
    ]
    assert {turn.how for turn in turns(events_of(log))} == {"decision"}
    assert not replay_match(log.read(MATCH)).differences
    for length in range(5, len(tags)):
        shorter = await cut(log, length)
        await resume_one(shorter, KUHN, agents, engine=DirectEngine())
        assert timeless(events_of(shorter)) == timeless(events_of(log))


async def test_agent_asks_one_thing_at_a_time() -> None:
    class Hasty(Agent):
        asks = True

        async def act(self, turn: Turn) -> Act:
            async with anyio.create_task_group() as group:
                group.start_soon(turn.ask, turn.questions())
                group.start_soon(turn.ask, turn.questions())
            raise AssertionError

    with pytest.raises(CannotPlay, match="one thing at a time"):
        await play_one(KUHN, [Hasty(), Hasty()], engine=SilentEngine())
