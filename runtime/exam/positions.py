"""Positions to learn from and to be tested on, from play of mixed strength."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from games.base import CHANCE, State
from games.expedition.game import ExpeditionState
from games.expedition.solver import Solver
from games.registry import load_game
from games.solved import Position, connect_four, expedition, kuhn_poker, tictactoe
from games.solved.judged import is_test
from games.tictactoe import CELLS, EMPTY, MARKS, TicTacToeState, winner


def tictactoe_positions(source: random.Random, *, test: bool) -> Iterator[Position]:
    """Give every position of the game, in an order and with histories of their own, for ever.

    Here and below `test` picks those that are for tests, or those to learn from.
    """
    every = sorted(
        (cells, seat)
        for cells, seat in tictactoe.reachable()
        if EMPTY in cells and winner(cells) is None
    )
    start = load_game(tictactoe.GAME).start(seats=2, seed=0)
    while True:
        source.shuffle(every)
        for cells, _ in every:
            position = tictactoe.position(_led_to(cells, start, source))
            if position.test == test:
                yield position


def _led_to(cells: str, start: State, source: random.Random) -> TicTacToeState:
    """Play the marks of a position in some order in which nobody has won before."""
    while True:
        turns = [[i for i, mark in enumerate(cells) if mark == each] for each in MARKS]
        for each in turns:
            source.shuffle(each)
        state = start
        for ply in range(len(CELLS) - cells.count(EMPTY)):
            if state.actor is None:
                break
            state = state.apply(CELLS[turns[ply % 2][ply // 2]])
        assert isinstance(state, TicTacToeState)
        if state.cells == cells:
            return state


def kuhn_positions(source: random.Random) -> Iterator[Position]:
    """Give what a seat knows, each as often as any other, for ever."""
    game = load_game(kuhn_poker.GAME)
    sets = kuhn_poker.information_sets()
    while True:
        source.shuffle(sets)
        for card, bets in sets:
            seat = len(bets) % kuhn_poker.SEATS
            others = [other for other in range(len(kuhn_poker.CARDS)) if other != card]
            cards = [card, source.choice(others)] if seat == 0 else [source.choice(others), card]
            state: State = game.start(seats=kuhn_poker.SEATS, seed=0)
            for each in cards:
                state = state.apply(kuhn_poker.CARDS[each])
            for each in bets:
                state = state.apply("bet" if each == "b" else "pass")
            yield kuhn_poker.position(state)  # pyright: ignore[reportArgumentType]


def connect_four_positions(source: random.Random, *, test: bool) -> Iterator[Position]:
    """Give positions of matches between players who err more or less often, for ever.

    A position comes once, with its mirror image; of each match about a half.
    """
    game = load_game(connect_four.GAME)
    judge, seen = connect_four.Searcher(), set[str]()
    players = [connect_four.Searcher(depth) for depth in (1, 2, 4)]
    while True:
        errs = [source.choice((0.05, 0.2, 0.5, 1.0)) for _ in range(2)]
        searchers = [source.choice(players) for _ in range(2)]
        state: State = game.start(seats=2, seed=0)
        while (seat := state.actor) is not None:
            name, tested = connect_four.key(state)
            if tested == test and name not in seen and source.random() < 0.5:
                seen.add(name)
                yield connect_four.position(state, judge)
            if source.random() < errs[seat]:
                action = source.choice(state.options()).id
            else:
                action = connect_four.best_action(state, searchers[seat])
            state = state.apply(action)


def expedition_positions(
    source: random.Random, *, rules: str, size: str, each: int, test: bool
) -> Iterator[Position]:
    """Give positions of journeys on maps of their own, for ever.

    Args:
        source: Draws maps and steps.
        rules: The rulebook, `full`, `short`, or `none`: the text then starts with the map.
        size: Of the maps.
        each: How many of every map; solving it is what takes time.
        test: Of which maps.
    """
    book = "short" if rules == "none" else rules
    game = load_game(f"expedition(rules={book},size={size})")
    while True:
        solver, given = Solver(), 0
        start = game.start(seats=1, seed=source.getrandbits(40))
        assert isinstance(start, ExpeditionState)
        if is_test(expedition.key(start.world)) != test:
            continue
        solver.value(start)  # at once for all that can follow
        while given < each:
            errs = source.choice((0.0, 0.2, 0.6))
            for state in _journey(start, solver, errs, source):
                if given < each and source.random() < 0.4:
                    given += 1
                    found = expedition.position(state, solver)
                    yield _without_rules(found) if rules == "none" else found


def _journey(
    state: State, solver: Solver, errs: float, source: random.Random
) -> Iterator[ExpeditionState]:
    while state.actor is not None:
        if state.actor == CHANCE:
            outcomes = state.outcomes()
            weights = [outcome.weight for outcome in outcomes]
            state = state.apply(source.choices(outcomes, weights)[0].id)
            continue
        assert isinstance(state, ExpeditionState)
        yield state
        steps = [option.id for option in state.options()]
        wrong = source.random() < errs
        state = state.apply(source.choice(steps) if wrong else solver.best_action(state))


def _without_rules(position: Position) -> Position:
    """Start the text with the map."""
    view = position.view
    public = view.public[view.public.index("# This journey") :]
    return msgspec.structs.replace(position, view=msgspec.structs.replace(view, public=public))
