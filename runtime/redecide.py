"""Asks another model the decisions that a recording holds, and compares its answers.

The requests are the recorded ones to the byte: what cannot be derived again is not asked. Only
sums are kept, so that memory does not grow with the number of decisions.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from engine.client import Engine
from engine.contract import Ask, DecisionRequest
from engine.errors import EngineError
from games.base import Game, Settles
from games.questions import Answer
from games.registry import load_recorded
from runtime.agents.registry import policy_of, split_spec
from runtime.calibration import Bin, Calibration
from runtime.errors import ReplayDiffers, first_of
from runtime.fold import Asked, Fold, advance, begin
from runtime.lots import seat_draw
from runtime.policy import Policy
from runtime.recordings import Lost, open_recordings
from runtime.requests import answers_of, derive_again
from store.events import DecisionAnswered, DecisionFailed, DecisionRequested, MatchStarted
from store.log import Recorded

IN_FLIGHT = 64
"""Decisions asked at once."""

CELLS = 20
"""Bins along each side of the map of recorded against new probabilities."""


class Known(NamedTuple):
    """One answered decision of a recording."""

    asked: DecisionRequested
    answer: DecisionAnswered
    ask: Ask
    policy: Policy
    draw: float
    truths: dict[str, str]


class QuestionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one question.

    Attributes:
        asked: How many answers were compared.
        agreed: How often both models have the same most probable option.
        mean_change: Mean absolute change of an option's probability.
        largest_change: The largest, found in `largest_at`, a decision's id.
        known: Answers whose truth the rules settle; the scores are over these.
    """

    question: str
    asked: int
    agreed: int
    mean_change: float
    largest_change: float
    largest_at: str
    known: int
    brier_recorded: float | None
    brier_new: float | None
    ece_recorded: float | None
    ece_new: float | None


class RedecideReport(msgspec.Struct, frozen=True, kw_only=True):
    """A recording's decisions and another model's answers to them.

    Attributes:
        decisions: Answered by both.
        changed: Decisions in which the seat's policy, with its recorded draw, would choose
            another option.
        failed: How many the other model did not answer, by error code.
        unanswered: Decisions that have no answer in the recording; they were not asked.
        matches_lost: Matches that cannot be read.
        cells: How often an option went from probability row/20 to column/20.
        recorded, new: Bins of calibration over all questions whose truth is known.
    """

    model: str
    matches: int
    decisions: int
    changed: int
    failed: dict[str, int]
    unanswered: int
    matches_lost: int
    questions: tuple[QuestionReport, ...]
    cells: tuple[tuple[int, ...], ...]
    recorded: tuple[Bin, ...]
    new: tuple[Bin, ...]

    @property
    def agreement(self) -> float | None:
        """The share of all answers with the same most probable option; None without any."""
        asked = sum(each.asked for each in self.questions)
        return sum(each.agreed for each in self.questions) / asked if asked else None


async def redecide_file(
    path: Path,
    engine: Engine,
    *,
    match: str | None = None,
    deadline_s: float = 30.0,
    source: str,
    on_match: Callable[[], None] | None = None,
) -> RedecideReport:
    """Ask a model every answered decision of a log or of a portable file.

    Args:
        path: The recording.
        engine: The other model.
        match: The only match to take; None takes all.
        deadline_s: For each answer.
        source: Names who waits, as the engine was told.
        on_match: Called after each match was put to the model.

    Raises:
        ReplayDiffers: A request is not the recorded one with this code.
        UnknownMatch, StoreError: The recording has no such match, or cannot be read.
        GamesError: A game is not known here.
    """
    comparison = _Comparison(engine.model.name)
    run = secrets.token_hex(4)
    limit = anyio.Semaphore(IN_FLIGHT)

    async def ask(known: Known) -> None:
        request = DecisionRequest(
            id=f"{run}-{known.asked.decision}",
            attempt=1,
            source=source,
            affinity=known.asked.decision.rpartition("-")[0],
            remaining_s=deadline_s,
            ask=known.ask,
        )
        try:
            answers = answers_of(known.asked.questions, await engine.decide(request))
        except EngineError as error:
            comparison.failed[error.code] += 1
        else:
            comparison.add(known, answers)
        finally:
            limit.release()

    try:
        async with open_recordings(path) as recordings, anyio.create_task_group() as group:
            whole = [recordings.read(match)] if match is not None else recordings.all()
            for recorded in whole:
                if isinstance(recorded, Lost):
                    comparison.lost += 1
                    continue
                comparison.matches += 1
                for known in decisions_of(recorded):
                    if known is None:
                        comparison.unanswered += 1
                        continue
                    await limit.acquire()
                    group.start_soon(ask, known)
                if on_match is not None:
                    on_match()
    except ExceptionGroup as failed:
        raise first_of(failed) from None
    return comparison.report()


def decisions_of(recorded: list[Recorded], *, game: Game | None = None) -> Iterator[Known | None]:
    """Give the decisions of a match in order, None for one without an answer.

    Raises:
        ReplayDiffers: A request is not the recorded one with this code.
    """
    started = recorded[0].event
    assert isinstance(started, MatchStarted)  # no log and no file takes another first event
    rules = game or load_recorded(started.game)
    state = rules.start(seats=len(started.seats), seed=started.seed)
    fold = begin(recorded[0].match, started, state)
    for each in recorded[1:]:
        before, fold = fold, advance(fold, each.event)
        if isinstance(each.event, DecisionAnswered):
            yield _known(before, before.asked[-1], each.event)
        elif isinstance(each.event, DecisionFailed):
            yield None
    if fold.asked and fold.asked[-1].open:
        yield None


def _known(fold: Fold, asked: Asked, answer: DecisionAnswered) -> Known:
    request = asked.request
    view = fold.state.view(request.seat)
    derived = derive_again(view, request)
    if derived.sha256 != request.sha256:
        raise ReplayDiffers(
            f"decision {request.decision}: the request was {request.sha256[:12]} and is"
            f" {derived.sha256[:12]}; ask with the code that recorded the match"
        )
    spec = fold.started.seats[request.seat]
    policy = policy_of(spec) if split_spec(spec)[0] == "decision" else Policy()
    truths = dict(fold.state.truths()) if isinstance(fold.state, Settles) else {}
    draw = seat_draw(fold, request.part)
    return Known(request, answer, derived.ask, policy, draw, truths)


class _Question:
    """Sums over the answers to one question."""

    def __init__(self) -> None:
        self.asked = self.agreed = self.options = 0
        self.change = 0.0
        self.largest: tuple[float, str] = (0.0, "")
        self.recorded, self.new = Calibration(), Calibration()


class _Comparison:
    """Sums over all decisions."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.matches = self.decisions = self.changed = self.unanswered = self.lost = 0
        self.failed = Counter[str]()
        self._questions: dict[str, _Question] = {}
        self._cells = [[0] * CELLS for _ in range(CELLS)]
        self._recorded, self._new = Calibration(), Calibration()

    def add(self, known: Known, answers: tuple[Answer, ...]) -> None:
        """Count one decision that both models answered."""
        self.decisions += 1
        first, second = known.answer.answers[0].probabilities, answers[0].probabilities
        choose = known.policy.choose
        self.changed += choose(first, known.draw) != choose(second, known.draw)
        for question, was, now in zip(
            known.asked.questions, known.answer.answers, answers, strict=True
        ):
            sums = self._questions.setdefault(question.id, _Question())
            self._compare(sums, known.asked.decision, was.probabilities, now.probabilities)
            if (right := known.truths.get(question.id)) is not None:
                truth = [option.id for option in question.options].index(right)
                for sides in (sums.recorded, self._recorded):
                    sides.add(was.probabilities, truth)
                for sides in (sums.new, self._new):
                    sides.add(now.probabilities, truth)

    def _compare(
        self, sums: _Question, decision: str, was: tuple[float, ...], now: tuple[float, ...]
    ) -> None:
        sums.asked += 1
        sums.agreed += was.index(max(was)) == now.index(max(now))
        for one, two in zip(was, now, strict=True):
            change = abs(one - two)
            sums.options += 1
            sums.change += change
            sums.largest = max(sums.largest, (change, decision))
            self._cells[_cell(one)][_cell(two)] += 1

    def report(self) -> RedecideReport:
        """Give what it all came to."""
        return RedecideReport(
            model=self._model,
            matches=self.matches,
            decisions=self.decisions,
            changed=self.changed,
            failed=dict(self.failed),
            unanswered=self.unanswered,
            matches_lost=self.lost,
            questions=tuple(
                QuestionReport(
                    question=id,
                    asked=sums.asked,
                    agreed=sums.agreed,
                    mean_change=sums.change / sums.options,
                    largest_change=sums.largest[0],
                    largest_at=sums.largest[1],
                    known=sums.new.count,
                    brier_recorded=sums.recorded.brier,
                    brier_new=sums.new.brier,
                    ece_recorded=sums.recorded.ece,
                    ece_new=sums.new.ece,
                )
                for id, sums in sorted(self._questions.items())
            ),
            cells=tuple(map(tuple, self._cells)),
            recorded=tuple(self._recorded.bins()),
            new=tuple(self._new.bins()),
        )


def _cell(probability: float) -> int:
    return min(int(probability * CELLS), CELLS - 1)
