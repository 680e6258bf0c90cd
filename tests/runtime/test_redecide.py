from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract import encode_ask
from engine.errors import NoWorker
from games import load_game
from runtime.errors import ReplayDiffers
from runtime.play import Run
from runtime.plots import plot_redecided
from runtime.redecide import decisions_of, redecide_file
from store.events import DecisionAnswered
from store.sqlite import open_log
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import events_of, play_one, seat
from tests.support.toys import Diary

EXPEDITION = load_game("expedition(rules=short,size=small)")


@pytest.fixture
async def recording(tmp_path: Path) -> tuple[Path, DirectEngine]:
    path, engine = tmp_path / "log.db", DirectEngine()
    log = open_log(path)
    await Run(log, EXPEDITION, [seat("decision:temperature=1")], matches=3, seed=1).play(engine)
    await log.close()
    return path, engine


async def test_the_same_model_answers_the_same_requests_the_same(
    recording: tuple[Path, DirectEngine],
) -> None:
    path, engine = recording
    again = DirectEngine()
    report = await redecide_file(path, again, source="test")
    asked = {encode_ask(request.ask) for request in engine.requests}
    assert {encode_ask(request.ask) for request in again.requests} == asked
    assert report.decisions == len(engine.requests) > 0
    assert report.matches == 3
    assert (report.changed, report.unanswered, report.failed) == (0, 0, {})
    assert report.agreement == 1
    for each in report.questions:
        assert each.agreed == each.asked
        assert each.mean_change == each.largest_change == 0
        assert each.brier_recorded == each.brier_new
    low = next(each for each in report.questions if each.question == "energy_low")
    assert low.known == low.asked
    assert low.brier_new is not None
    assert 0 < low.brier_new < 2


async def test_changes_are_those_between_the_two_answers(
    recording: tuple[Path, DirectEngine], tmp_path: Path
) -> None:
    path, _ = recording
    other = DirectEngine("mock:seed=2")
    report = await redecide_file(path, other, source="test")
    log = open_log(path, read_only=True)
    changes: list[tuple[float, str]] = []
    same = count = 0
    for summary in log.matches():
        for event in events_of(log, summary.match):
            if isinstance(event, DecisionAnswered):
                request = next(r for r in other.requests if r.id.endswith(event.decision))
                fields = (await DirectEngine("mock:seed=2").decide(request)).answers
                now = dict(zip(fields[0].option_ids, fields[0].probabilities, strict=True))
                was = event.answers[0].probabilities
                asked = log.read(summary.match)[int(event.decision.rpartition("-")[2])].event
                options = [option.id for option in asked.questions[0].options]  # pyright: ignore
                pairs = [(p, now[id]) for p, id in zip(was, options, strict=True)]
                changes += [(abs(one - two), event.decision) for one, two in pairs]
                same += max(pairs)[0] == max(pairs, key=lambda pair: pair[1])[0]
                count += 1
    await log.close()
    step = next(each for each in report.questions if each.question == "step")
    assert (step.asked, step.agreed) == (count, same)
    assert 0 < step.agreed < step.asked
    assert step.mean_change == pytest.approx(sum(c for c, _ in changes) / len(changes))
    assert (step.largest_change, step.largest_at) == max(changes)
    assert sum(map(sum, report.cells)) == sum(
        each.asked * {"step": 6, "energy_low": 2}[each.question] for each in report.questions
    )
    assert report.changed > 0
    plots = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for plot in plots:
        plot_redecided(report, plot)
    assert plots[0].read_bytes() == plots[1].read_bytes()
    assert b"</svg>" in plots[0].read_bytes()


async def test_what_is_not_answered_is_counted(recording: tuple[Path, DirectEngine]) -> None:
    path, engine = recording
    report = await redecide_file(path, FailingEngine(NoWorker("none")), source="test")
    assert report.failed == {NoWorker.code: len(engine.requests)}
    assert (report.decisions, report.agreement) == (0, None)


async def test_decisions_without_an_answer_are_not_asked() -> None:
    game = Diary(days=4)
    failing = FailingEngine(NoWorker("none"), failing=lambda number: number == 2)
    log, _ = await play_one(game, ["decision"], engine=failing)
    known = list(decisions_of(log.read("m-1"), game=game))
    assert [each is None for each in known] == [False, False, True]


async def test_request_that_cannot_be_made_again_is_refused() -> None:
    log, _ = await play_one(Diary(days=4), ["decision"], engine=DirectEngine())
    with pytest.raises(ReplayDiffers, match="the request was"):
        list(decisions_of(log.read("m-1"), game=Diary(days=4, width=9)))
