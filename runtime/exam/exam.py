"""The whole exam: questions on positions for tests, invariance, matches, journeys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import anyio
import msgspec

from games.solved import Judged, Position, connect_four, expedition, kuhn_poker, tictactoe
from runtime.calibration import Bin
from runtime.exam.asking import Asker, Decides
from runtime.exam.invariance import Change, changes
from runtime.exam.marks import Marks, Row
from runtime.exam.matches import (
    AT_ONCE,
    Journeys,
    Result,
    at_random,
    journeys,
    kuhn_policy,
    perfectly,
    play,
    searcher,
    two_plies,
)
from runtime.exam.positions import (
    connect_four_positions,
    expedition_positions,
    kuhn_positions,
    tictactoe_positions,
)

GAMES = (tictactoe.GAME, kuhn_poker.GAME, connect_four.GAME, expedition.GAME)
_PER_MAP = 5
_COMPARED = 8  # positions of a game whose answers are asked for again and again

Report = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and all of it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How long an exam is.

    Attributes:
        games: Which.
        positions: For tests, of each game; Kuhn poker has twelve in all.
        matches: Against each player, of each seat.
        maps: Of expedition to cross.
        rules: Expedition's rulebook, `full` or `short`.
        seed: Another one, other positions and matches.
    """

    games: tuple[str, ...] = GAMES
    positions: int = 100
    matches: int = 50
    maps: int = 10
    rules: str = "full"
    seed: int = 1


class Kuhn(msgspec.Struct, frozen=True):
    """Kuhn poker by probabilities: what best responses gain, in chips a hand, and the policy."""

    exploitability: float
    even: float
    """Of a player who bets half the time, for comparison."""
    bets: dict[str, float]


class Exam(msgspec.Struct, frozen=True):
    """What came out."""

    questions: list[Row]
    reliability: dict[str, list[Bin]]
    invariance: dict[str, list[Change]]
    matches: list[Result]
    kuhn: Kuhn | None
    journeys: list[Journeys]
    answers: dict[str, tuple[float, ...]]
    """By position and question, to compare two runs."""


async def run(model: Decides, options: Options, report: Report) -> Exam:
    """Examine a model.

    Raises:
        EngineError: A question got no answer.
    """
    asker, marks, samples = Asker(model), dict[str, Marks](), dict[str, Judged]()
    answers: dict[str, tuple[float, ...]] = {}
    invariance: dict[str, list[Change]] = {}
    results: list[Result] = []
    kuhn, crossed = None, list[Journeys]()
    for game in options.games:
        positions = list(positions_of(game, options))
        await _ask_all(asker, game, positions, marks, samples, answers, report)
        report(f"{game}: invariance", 0, 1)
        invariance[game] = await changes(asker, positions[:_COMPARED])
        for against, opponent, opening in _opponents(game):
            report(f"{game}: matches against {against}", 0, 1)
            results += await play(
                asker,
                game,
                against,
                opponent,
                matches=options.matches,
                opening=opening,
                seed=options.seed,
            )
        if game == kuhn_poker.GAME:
            policy = await kuhn_policy(asker)
            kuhn = Kuhn(
                kuhn_poker.exploitability(lambda card, bets, of=policy: of[card, bets]),
                kuhn_poker.exploitability(lambda card, bets: 0.5),
                {
                    f"{kuhn_poker.CARDS[card]} {bets}".strip(): p
                    for (card, bets), p in policy.items()
                },
            )
        if game == expedition.GAME and options.maps:
            report(f"{game}: journeys", 0, 1)
            found = await journeys(asker, rules=options.rules, maps=options.maps, seed=options.seed)
            crossed.append(found)
    return Exam(
        questions=[marks[name].row(name, samples[name]) for name in marks],
        reliability={name: marks[name].bins() for name in marks},
        invariance=invariance,
        matches=results,
        kuhn=kuhn,
        journeys=crossed,
        answers=answers,
    )


def positions_of(game: str, options: Options) -> Iterator[Position]:
    """Give positions for tests; of Kuhn poker, all that there are."""
    source = random.Random(f"{options.seed} exam {game}")
    if game == tictactoe.GAME:
        found = tictactoe_positions(source, test=True)
    elif game == kuhn_poker.GAME:
        return islice(kuhn_positions(source), len(kuhn_poker.information_sets()))
    elif game == connect_four.GAME:
        found = connect_four_positions(source, test=True)
    else:
        found = expedition_positions(
            source, rules=options.rules, size="standard", each=_PER_MAP, test=True
        )
    return islice(found, options.positions)


async def _ask_all(
    asker: Asker,
    game: str,
    positions: Sequence[Position],
    marks: dict[str, Marks],
    samples: dict[str, Judged],
    answers: dict[str, tuple[float, ...]],
    report: Report,
) -> None:
    done = 0
    limit = anyio.CapacityLimiter(AT_ONCE)
    found: dict[int, list[tuple[float, ...]]] = {}

    async def one(index: int, position: Position) -> None:
        nonlocal done
        async with limit:
            questions = [judged.question for judged in position.judged]
            found[index] = await asker.ask(position.view, questions)
            done += 1
            report(f"{game}: questions", done, len(positions))

    async with anyio.create_task_group() as group:
        for index, position in enumerate(positions):
            group.start_soon(one, index, position)
    for index, position in enumerate(positions):
        for judged, probabilities in zip(position.judged, found[index], strict=True):
            name = f"{game}: {judged.question.id}"
            samples.setdefault(name, judged)
            marks.setdefault(name, Marks()).add(judged, probabilities)
            answers[f"{index} {position.key} {judged.question.id}"] = probabilities


def _opponents(game: str) -> list[tuple[str, Callable[..., str], int]]:
    """Give opponents with their names, and how many turns are drawn before they play."""
    if game == tictactoe.GAME:
        return [("random", at_random, 0), ("perfect", perfectly, 0)]
    if game == connect_four.GAME:
        return [
            ("random", at_random, 0),
            ("two plies", two_plies, 2),
            ("searcher", searcher(), 2),
        ]
    return []


def difference(one: Exam, other: Exam) -> Change:
    """Compare the answers of two runs of the same exam."""
    largest, same = 0.0, 0
    for name, first in one.answers.items():
        second = other.answers[name]
        largest = max(largest, *(abs(a - b) for a, b in zip(first, second, strict=True)))
        same += first.index(max(first)) == second.index(max(second))
    return Change("float32 and bfloat16", len(one.answers), largest, same / len(one.answers))
