"""Matches of a model against players that are known: random, and the solver."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import anyio

from games.base import CHANCE, State
from games.expedition.game import ExpeditionState
from games.expedition.solver import Solver
from games.registry import load_game
from games.solved import connect_four, expedition, kuhn_poker, tictactoe
from games.solved.judged import is_test
from games.tictactoe import TicTacToeState
from runtime.exam.asking import Asker
from runtime.exam.marks import interval

AT_ONCE = 16
"""Matches that are played side by side."""

Chooses = Callable[[State, random.Random], str]


class Result(NamedTuple):
    """Matches against one player, seats in turn.

    Attributes:
        low, high: The share of wins' 95 % interval.
        returned: Mean return of the model.
    """

    game: str
    against: str
    seat: str
    matches: int
    won: int
    drawn: int
    lost: int
    low: float
    high: float
    returned: float


class Journeys(NamedTuple):
    """Journeys of expedition on maps that nothing was learned from.

    Attributes:
        returned, best, chance: Mean share of the points: of the model, what best play expects on
            these maps, and of random steps.
        share: Of the best.
    """

    rules: str
    maps: int
    returned: float
    best: float
    chance: float
    share: float


def at_random(state: State, source: random.Random) -> str:
    """Choose any option."""
    return source.choice(state.options()).id


def perfectly(state: State, source: random.Random) -> str:
    """Choose as the solver of tic-tac-toe does, among the best at random."""
    assert isinstance(state, TicTacToeState)
    judged = tictactoe.position(state).judged[0]
    assert judged.values is not None
    best = max(judged.values)
    options = judged.question.options
    right = [o.id for o, value in zip(options, judged.values, strict=True) if value == best]
    return source.choice(right)


def two_plies(state: State, source: random.Random) -> str:
    """Play connect four as a minimax of depth two does: a win, else what lets the other not win.

    Among equals it draws, as the agent `minimax` does.
    """
    own, mask = connect_four.board(state)
    worths = connect_four.two_plies(own, mask)
    most = max(worths.values())
    labels = [option.id for option in state.options()]
    return source.choice([each for each in labels if worths[connect_four.column_of(each)] == most])


def searcher() -> Chooses:
    """Give a player of connect four that searches on to threats, and judges what it cannot see."""
    searcher = connect_four.Searcher(2)

    def choose(state: State, source: random.Random) -> str:
        return connect_four.best_action(state, searcher)

    return choose


async def play(
    asker: Asker,
    game: str,
    against: str,
    opponent: Chooses,
    *,
    matches: int,
    opening: int,
    seed: int,
) -> list[Result]:
    """Play with the most probable option; give a result for each seat.

    Args:
        asker: Of the model.
        game: Of two seats.
        against: What to call the other player.
        opponent: How it chooses.
        matches: Of each seat.
        opening: Turns that are drawn, of both: players that always answer alike would play one
            match over and over.
        seed: Of everything that is drawn.
    """
    results: list[Result] = []
    for seat in (0, 1):
        returns: list[float] = []
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def one(
            number: int,
            seat: int = seat,
            returns: list[float] = returns,
            limit: anyio.CapacityLimiter = limit,
        ) -> None:
            async with limit:
                source = random.Random(f"{seed} {game} {against} {seat} {number}")
                returns.append(await _match(asker, game, seat, opponent, source, opening))

        async with anyio.create_task_group() as group:
            for number in range(matches):
                group.start_soon(one, number)
        won = sum(each > 0 for each in returns)
        lost = sum(each < 0 for each in returns)
        low, high = interval(won, matches)
        results.append(
            Result(
                game=game,
                against=against,
                seat="first" if seat == 0 else "second",
                matches=matches,
                won=won,
                drawn=matches - won - lost,
                lost=lost,
                low=low,
                high=high,
                returned=sum(returns) / matches,
            )
        )
    return results


async def _match(
    asker: Asker, game: str, seat: int, opponent: Chooses, source: random.Random, opening: int
) -> float:
    state: State = load_game(game).start(seats=2, seed=0)
    turn = 0
    while state.actor is not None:
        if turn < opening:
            action = at_random(state, source)
        elif state.actor == seat:
            action = await _most_probable(asker, state)
        else:
            action = opponent(state, source)
        state, turn = state.apply(action), turn + 1
    return state.returns()[seat]


async def _most_probable(asker: Asker, state: State) -> str:
    assert state.actor is not None
    question = state.questions()[0]
    if len(question.options) == 1:
        return question.options[0].id
    [answer] = await asker.ask(state.view(state.actor), [question])
    return question.options[answer.index(max(answer))].id


async def kuhn_policy(asker: Asker) -> dict[tuple[int, str], float]:
    """Ask in all that a seat can know; give the probability of a bet."""
    found: dict[tuple[int, str], float] = {}
    for card, bets in kuhn_poker.information_sets():
        state: State = load_game(kuhn_poker.GAME).start(seats=kuhn_poker.SEATS, seed=0)
        other = next(each for each in range(len(kuhn_poker.CARDS)) if each != card)
        cards = [card, other] if len(bets) % kuhn_poker.SEATS == 0 else [other, card]
        for each in cards:
            state = state.apply(kuhn_poker.CARDS[each])
        for made in bets:
            state = state.apply("bet" if made == "b" else "pass")
        assert state.actor is not None
        question = state.questions()[0]
        [answer] = await asker.ask(state.view(state.actor), [question])
        bet = [option.id for option in question.options].index("bet")
        found[card, bets] = answer[bet]
    return found


async def journeys(asker: Asker, *, rules: str, maps: int, seed: int) -> Journeys:
    """Cross maps for tests with the most probable step; chance is drawn alike for all."""
    game = load_game(f"expedition(rules={rules})")
    totals = [0.0, 0.0, 0.0]
    source, found = random.Random(f"{seed} maps"), 0
    while found < maps:
        number = source.getrandbits(40)
        start = game.start(seats=1, seed=number)
        assert isinstance(start, ExpeditionState)
        if not is_test(expedition.key(start.world)):
            continue
        found += 1
        totals[0] += await _journey(start, number, asker)
        totals[1] += Solver().value(start)
        totals[2] += await _journey(start, number, None)
    mean = [total / maps for total in totals]
    return Journeys(rules, maps, *mean, share=mean[0] / mean[1])


async def _journey(state: State, seed: int, asker: Asker | None) -> float:
    chance, steps = random.Random(f"{seed} chance"), random.Random(f"{seed} steps")
    while state.actor is not None:
        if state.actor == CHANCE:
            outcomes = state.outcomes()
            weights = [outcome.weight for outcome in outcomes]
            action = chance.choices(outcomes, weights)[0].id
        elif asker is None:
            action = at_random(state, steps)
        else:
            action = await _most_probable(asker, state)
        state = state.apply(action)
    return state.returns()[0]
