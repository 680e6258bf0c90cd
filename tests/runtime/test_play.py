from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest

from engine.contract import DecisionReply, DecisionRequest
from engine.errors import NoWorker, QueueFull
from games import load_game
from runtime import play
from runtime.agents import Act, Agent, Turn
from runtime.errors import BadInput, CannotPlay
from runtime.match import MatchResult
from runtime.play import Run as PlainRun
from runtime.replay import replay_file
from runtime.table import Terms
from store.events import MatchStarted
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import events_of, kinds, seat, timeless, turns
from tests.support.runs import KeptRun as Run
from tests.support.toys import Grid

TICTACTOE = load_game("tictactoe")


def run_of(
    log: MemoryLog, *agents: str, matches: int = 4, seed: int | None = 1, **more: Any
) -> Run:
    seats = [seat(agent) for agent in agents]
    return Run(log, TICTACTOE, seats, matches=matches, seed=seed, **more)


async def test_matches_have_ids_and_seeds_of_their_own_and_come_in_order() -> None:
    log = MemoryLog()
    seen: list[MatchResult] = []
    report = await run_of(log, "random", "random", matches=20, on_result=seen.append).play()
    ids = [result.match for result in report.matches]
    assert ids == sorted(set(ids))
    assert seen == list(report.matches)
    assert report.results.matches == report.results.ended == 20
    assert report.results.turns == sum(result.turns for result in seen)
    for place, sums in enumerate(report.results.seats):
        returns = [result.returns[place] for result in seen]
        assert (sums.returned, sums.won) == (sum(returns), returns.count(1.0))
        assert sums.drawn == returns.count(0.0)
    firsts = [events_of(log, match)[0] for match in ids]
    assert len({first.seed for first in firsts if isinstance(first, MatchStarted)}) == 20


async def test_ids_are_tokens_whatever_the_game_is_called() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:connect_four")
    report = await Run(
        MemoryLog(), game, [seat("random"), seat("random")], matches=1, seed=1
    ).play()
    assert report.matches[0].match.replace("_", "").replace("-", "").isalnum()


async def test_same_run_again_repeats_nothing() -> None:
    log = MemoryLog()
    engine = DirectEngine()
    first = await run_of(log, "decision", "random").play(engine)
    asked = len(engine.requests)
    again = await run_of(log, "decision", "random").play(engine)
    assert again.matches == first.matches
    assert len(engine.requests) == asked
    assert again.decisions.asked == 0
    assert first.decisions.asked == first.decisions.answered == asked


async def test_more_matches_of_the_same_run_start_with_those_it_has() -> None:
    log = MemoryLog()
    few = await run_of(log, "random", "random", matches=3).play()
    many = await run_of(log, "random", "random", matches=5).play()
    assert many.matches[:3] == few.matches


async def test_other_agents_seed_or_model_are_another_run() -> None:
    log = MemoryLog()
    engine = DirectEngine()
    await run_of(log, "random", "decision").play(engine)
    await run_of(log, "decision", "random").play(engine)
    await run_of(log, "random", "decision", seed=2).play(engine)
    await run_of(log, "random", "decision").play(DirectEngine("mock:seed=2"))
    assert len(list(log.matches(ended=True))) == 16


async def test_unfinished_matches_are_resumed() -> None:
    whole = MemoryLog()
    report = await run_of(whole, "decision", "random", matches=6).play(DirectEngine())
    log = MemoryLog()
    for number, summary in enumerate(whole.matches()):
        stored = whole.stored(summary.match)
        await log.restore(summary.match, stored[: 1 + number * 3])
    resumed = await run_of(log, "decision", "random", matches=6).play(DirectEngine())
    assert resumed.matches == report.matches
    for result in report.matches:
        expected = timeless(events_of(whole, result.match))
        assert timeless(events_of(log, result.match)) == expected


async def test_seed_is_drawn_and_told_when_none_is_given() -> None:
    one, other = (
        run_of(MemoryLog(), "random", "random", seed=None),
        run_of(MemoryLog(), "random", "random", seed=None),
    )
    assert one.seed != other.seed
    report = await one.play()
    again = await run_of(MemoryLog(), "random", "random", seed=report.seed).play()
    assert again.matches == report.matches


async def test_no_more_matches_at_once_than_allowed() -> None:
    now = most = 0

    class Slow(Agent):
        asks = False

        async def act(self, turn: Turn) -> Act:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await anyio.lowlevel.checkpoint()
            now -= 1
            return Act(turn.options[0].id)

    await Run(
        MemoryLog(), TICTACTOE, [seat(Slow()), seat(Slow())], matches=20, seed=1, concurrency=3
    ).play()
    assert most == 3


async def test_decisions_are_counted() -> None:
    engine = FailingEngine(NoWorker("none"), failing=lambda number: number % 4 == 0)
    report = await run_of(
        MemoryLog(), "decision", "random", matches=8, terms=Terms(fallback="random")
    ).play(engine)
    counts = report.decisions
    assert counts.asked == len(engine.requests) == counts.answered + counts.failed
    assert counts.failed == counts.fallback == -(-counts.asked // 4)
    assert counts.tokens_read > counts.answered
    assert counts.p50_ms is not None
    assert counts.p95_ms is not None
    assert 0 < counts.p50_ms <= counts.p95_ms


async def test_strays_reach_the_match_that_is_under_way() -> None:
    log = MemoryLog()

    class Echoing(DirectEngine):
        async def decide(self, request: DecisionRequest) -> DecisionReply:
            reply = await super().decide(request)
            if len(self.requests) == 2:
                await run.on_stray(DecisionReply(id=self.requests[0].id, attempt=1), "duplicate")
                await run.on_stray(DecisionReply(id="gone-0001-5", attempt=1), "late")
            return reply

    run = run_of(log, "decision", "random", matches=1)
    report = await run.play(Echoing())
    assert kinds(events_of(log, report.matches[0].match)).count("answer_discarded") == 1
    assert report.decisions.discarded == 1


async def test_strays_of_finished_matches_are_recorded_and_do_not_end_them_again() -> None:
    log = MemoryLog()
    engine = DirectEngine()
    run = run_of(log, "decision", "random", matches=2)
    await run.play(engine)
    asked = engine.requests[0]
    late = DecisionReply(id=f"{asked.affinity}-999", attempt=1)
    await run.on_stray(DecisionReply(id=asked.id, attempt=2), "unknown")
    await run.on_stray(late, "late")
    await run.on_stray(DecisionReply(id="gone-0001-5", attempt=1), "late")
    recorded = [(e.decision, e.reason) for e in events_of(log, asked.affinity)[-2:]]
    assert recorded == [(asked.id, "duplicate"), (late.id, "late")]
    assert (await run_of(log, "decision", "random", matches=2).play(engine)).decisions.asked == 0


async def test_a_full_queue_slows_matches_down_and_fails_none() -> None:
    class Full(DirectEngine):
        """Takes two requests at a time."""

        waiting = refused = 0

        async def decide(self, request: DecisionRequest) -> DecisionReply:
            if self.waiting == 2:
                self.refused += 1
                raise QueueFull("2 decisions are waiting")
            self.waiting += 1
            await anyio.sleep(0.001)
            self.waiting -= 1
            return await super().decide(request)

    log, engine = MemoryLog(), Full()
    report = await run_of(log, "decision", "random", matches=8, concurrency=8).play(engine)
    assert engine.refused > 0
    assert report.decisions.failed == report.decisions.fallback == 0
    assert {result.end for result in report.matches} == {"terminated"}


async def test_a_queue_that_stays_full_is_a_failure_within_the_deadline() -> None:
    terms = Terms(fallback="random", deadline_s=0.2)
    log, engine = MemoryLog(), FailingEngine(QueueFull("20 decisions are waiting"))
    report = await run_of(log, "decision", "random", matches=1, terms=terms).play(engine)
    assert report.decisions.fallback == report.decisions.failed > 0
    notes = [event.note for event in turns(events_of(log, report.matches[0].match))]
    assert "engine/queue_full: 20 decisions are waiting" in notes


async def test_first_error_comes_out_as_it_is_and_the_rest_can_go_on(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("top-left\nbottom\nnowhere\n")
    log = MemoryLog()
    with pytest.raises(BadInput, match="line 3: 'nowhere' is not legal"):
        await run_of(log, f"scripted:{script}", "random").play()
    assert list(log.matches(ended=False))


def test_agents_that_cannot_play_are_refused_at_once() -> None:
    log = MemoryLog()
    with pytest.raises(CannotPlay, match="2 seats, not 1"):
        run_of(log, "random")
    with pytest.raises(CannotPlay, match="factor its actions"):
        Run(log, Grid(factored=False), [seat("random"), seat("decision")], matches=1)
    Run(log, Grid(factored=False), [seat("random"), seat("random")], matches=1)
    Run(log, Grid(), [seat("random"), seat("decision")], matches=1)


async def test_agent_that_asks_needs_a_model() -> None:
    with pytest.raises(CannotPlay, match="--model"):
        await run_of(MemoryLog(), "random", "decision").play()


async def test_durable_run_goes_on_in_another_process_and_replays(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    agents = [seat("decision:temperature=0.8"), seat("random")]
    log = open_log(path)
    await Run(log, TICTACTOE, agents, matches=3, seed=7).play(DirectEngine())
    await log.close()
    log = open_log(path)
    report = await Run(log, TICTACTOE, agents, matches=12, seed=7).play(DirectEngine())
    await log.close()
    replayed = await replay_file(path)
    assert replayed.identical
    assert replayed.matches == len(report.matches) == 12
    assert replayed.turns == sum(result.turns for result in report.matches)
    assert replayed.unfinished == 0


async def test_no_match_runs_far_ahead_of_one_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that what waits to be counted is bounded."""
    monkeypatch.setattr(play, "AHEAD", 8)
    others_stand, counted = anyio.Event(), 0

    class Slow(Agent):
        """Its first match waits until no other goes on."""

        async def act(self, turn: Turn) -> Act:
            if turn.match.endswith("-0000"):
                await others_stand.wait()
            return Act(turn.options[0].id)

    def count(result: MatchResult) -> None:
        nonlocal counted
        counted += 1

    log = MemoryLog()
    run = Run(log, TICTACTOE, [seat(Slow()), seat("random")], matches=40, seed=1, on_result=count)
    async with anyio.create_task_group() as group:
        group.start_soon(run.play)
        with anyio.fail_after(60):
            while len(list(log.matches(ended=True))) < 7:
                await anyio.lowlevel.checkpoint()
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
        assert len(list(log.matches())) == 8
        assert counted == 0
        others_stand.set()
    assert counted == 40


async def test_nothing_grows_with_the_matches_that_have_ended(tmp_path: Path) -> None:
    """What a process holds after 500 matches is what it held after 100."""
    sizes: list[int] = []

    def note(result: MatchResult) -> None:
        if int(result.match[-4:]) in (99, 499):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])

    log = open_log(tmp_path / "log.db")
    seats = [seat("random"), seat("random")]
    game = load_game("kuhn_poker")  # it caches nothing, which would grow to its bound
    run = PlainRun(log, game, seats, matches=500, seed=1, on_result=note)
    tracemalloc.start()
    try:
        report = await run.play()
    finally:
        tracemalloc.stop()
        await log.close()
    assert report.results.ended == 500
    early, late = sizes
    assert late - early < 100 * 400, sizes  # 100 bytes a match; a result alone takes more


async def test_paused_matches_are_counted_and_the_first_are_named() -> None:
    engine = FailingEngine(NoWorker("none"))
    report = await run_of(MemoryLog(), "decision", "random", matches=5).play(engine)
    assert (report.results.matches, report.results.ended) == (5, 0)
    assert list(report.results.paused) == list(report.matches[:3])
    assert report.results.seats[0].returned == 0
