from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from games import load_game
from games.base import State
from games.kuhn_poker import KuhnState
from runtime.agents import Act, Agent, Turn
from runtime.errors import CannotPlay
from runtime.replay import replay_match
from runtime.table import check_seats
from store.memory import MemoryLog
from tests.support.matches import (
    MATCH,
    cut,
    events_of,
    kinds,
    play_one,
    resume_one,
    seat,
    turns,
)
from tests.support.oddities import Odd, OddGame
from tests.support.toys import Grid

TICTACTOE = load_game("tictactoe")
KUHN = load_game("kuhn_poker")

SEARCHES = ["mcts:simulations=40", "minimax:nodes=800"]


async def test_minimax_never_loses_tictactoe_and_beats_chance() -> None:
    won = 0
    for seed in range(3):
        for place in (0, 1):
            agents = ["random", "random"]
            agents[place] = "minimax"
            _, result = await play_one(TICTACTOE, agents, seed=seed)
            assert result.returns[place] >= 0
            won += result.returns[place] > 0
    assert won >= 3
    _, result = await play_one(TICTACTOE, ["minimax", "minimax"])
    assert result.returns == (0.0, 0.0)


async def test_minimax_takes_a_win_and_stops_a_loss_within_a_small_budget() -> None:
    class Takes(Agent):
        """X in a corner and beside it, so that O has to stop it."""

        async def act(self, turn: Turn) -> Act:
            return Act(("top-left", "top", "centre", "left", "bottom")[turn.index])

    log, _ = await play_one(TICTACTOE, [Takes(), "minimax:nodes=60"])
    assert turns(events_of(log))[3].action == "top-right"


async def test_mcts_beats_chance() -> None:
    points = 0.0
    for seed in range(4):
        agents = ["mcts:simulations=100", "random"]
        _, result = await play_one(TICTACTOE, agents, seed=seed)
        points += result.returns[0]
    assert points >= 3


async def test_mcts_searches_through_chance() -> None:
    pig = load_game("openspiel:pig(players=2,winscore=20)")
    wins = 0
    for seed in range(4):
        log, result = await play_one(pig, ["mcts:simulations=60", "random"], seed=seed)
        wins += result.returns[0] > 0
        assert not replay_match(log.read(MATCH)).differences
    assert wins >= 3


@pytest.mark.parametrize("spec", SEARCHES)
async def test_search_repeats_under_its_seed_and_records_its_draw(spec: str) -> None:
    log, again, other = [
        (await play_one(TICTACTOE, [spec, "random"], seed=seed))[0] for seed in (5, 5, 6)
    ]
    assert events_of(log) == events_of(again)
    assert events_of(log) != events_of(other)
    own = [turn for turn in turns(events_of(log)) if turn.seat == 0 and turn.how == "agent"]
    assert own
    assert all(turn.draw is not None for turn in own)
    assert not replay_match(log.read(MATCH)).differences


@pytest.mark.parametrize("spec", SEARCHES)
async def test_search_goes_on_after_a_restart_as_it_would_have(spec: str) -> None:
    log, _ = await play_one(TICTACTOE, [spec, "random"])
    for length in range(1, len(events_of(log))):
        shorter = await cut(log, length)
        await resume_one(shorter, TICTACTOE, [spec, "random"])
        assert events_of(shorter) == events_of(log)


@pytest.mark.parametrize("spec", ["mcts:simulations=1", "minimax:nodes=1"])
async def test_smallest_budget_is_enough_for_a_legal_action(spec: str) -> None:
    for game in (TICTACTOE, Grid(size=16, turns=4, factored=False)):
        if isinstance(game, Grid):
            game.facts = msgspec.structs.replace(game.facts, zero_sum=True)
        _, result = await play_one(game, [spec, spec])
        assert result.end == "terminated"


async def test_budget_bounds_how_many_states_are_made() -> None:
    made = 0

    class Counted(Odd):
        def apply(self, action: str) -> State:
            nonlocal made
            made += 1
            return super().apply(action)

    game = OddGame(TICTACTOE, Counted)
    for spec, most in (("minimax:nodes=50", 50), ("mcts:simulations=10", 10 * 9)):
        made = 0
        log, _ = await play_one(game, [spec, "random"])
        chosen = kinds(events_of(log)).count("turn_taken")
        assert made <= chosen * (most + 9) + 9


async def test_other_matches_go_on_during_a_search() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await play_one(TICTACTOE, ["mcts:simulations=200", "minimax:nodes=5000"])
        group.cancel_scope.cancel()
    assert ticks > 30


async def test_search_that_takes_too_long_falls_back() -> None:
    log, result = await play_one(TICTACTOE, ["mcts:simulations=100000000,deadline=0.01", "random"])
    assert result.end == "paused"
    assert "no action within 0.01 s" in result.reason
    assert kinds(events_of(log))[-1] == "match_paused"


def test_minimax_refuses_what_it_cannot_search() -> None:
    for game in (KUHN, load_game("expedition"), load_game("openspiel:kuhn_poker")):
        agents = [seat("minimax")] * game.facts.min_seats
        with pytest.raises(CannotPlay, match=r"no chance and nothing hidden.*take mcts"):
            check_seats(game, agents)


def test_search_of_a_game_that_cannot_draw_its_hidden_things_is_refused() -> None:
    for name in ("openspiel:blackjack", "openspiel:hearts", "openspiel:liars_dice"):
        game = load_game(name)
        agents = [seat("mcts")] * game.facts.min_seats
        with pytest.raises(CannotPlay, match=r"hides things from its seats.*does not search"):
            check_seats(game, agents)


class Looking(Agent):
    """Keeps every world that it is given."""

    def __init__(self) -> None:
        self.worlds: list[tuple[State, ...]] = []
        self.views: list[str] = []

    async def act(self, turn: Turn) -> Act:
        self.worlds.append(tuple(turn.world(number) for number in range(40)))
        self.views += [world.view(turn.seat).text for world in self.worlds[-1]]
        assert set(self.views[-40:]) == {turn.view.text}
        return Act(turn.options[0].id)


@pytest.mark.parametrize("name", ["kuhn_poker", "openspiel:kuhn_poker", "openspiel:leduc_poker"])
async def test_no_world_that_a_search_is_given_tells_what_its_seat_cannot_see(name: str) -> None:
    """The hidden card of the real match is no likelier than the rules make it."""
    game = load_game(name)
    agent = Looking()
    await play_one(game, [agent, "random"], seed=3)
    worlds = agent.worlds[0]
    truths = {world.encode() for world in worlds}
    assert len(truths) >= 2
    others = {world.view(1).text for world in worlds}
    assert len(others) >= 2
    again = Looking()
    await play_one(game, [again, "random"], seed=3)
    assert [world.encode() for world in again.worlds[0]] == [world.encode() for world in worlds]


async def test_search_does_not_change_its_mind_with_another_seats_secret() -> None:
    """Everything that it chooses from is the same, whatever the other seat holds."""
    chosen: dict[tuple[int, int], set[str]] = {}

    class Fixed(Odd):
        """The deal is the test's."""

        deal = (0, 1)

        def apply(self, action: str) -> State:
            state = self.state.apply(action)
            if isinstance(state, KuhnState) and len(state.cards) == 2 and not state.bets:
                state = msgspec.structs.replace(state, cards=self.deal)
            return type(self)(state)

        def resample(self, seat: int, draw: Callable[[int], float]) -> State | None:
            drawn: Any = self.state
            return drawn.resample(seat, draw)

    for own in range(3):
        for other in {0, 1, 2} - {own}:
            Fixed.deal = (own, other)
            log = MemoryLog()
            await play_one(OddGame(KUHN, Fixed), ["mcts:simulations=60", "random"], log=log)
            first = turns(events_of(log))[0]
            chosen.setdefault((own, 0), set()).add(first.action)
    assert all(len(actions) == 1 for actions in chosen.values())


async def test_mcts_plays_holdem_at_a_table_of_three() -> None:
    game = load_game("holdem(stack=20)")
    agents = ["mcts:simulations=6", "random", "mcts:simulations=6"]
    log, result = await play_one(game, agents, seed=2)
    assert result.end == "terminated"
    assert sum(result.returns) == 0
    assert not replay_match(log.read(MATCH)).differences


async def test_mcts_plays_kuhn_poker_with_some_sense() -> None:
    """With a Jack it never calls, with a King it always does."""
    for seed in range(30):
        log, _ = await play_one(KUHN, ["random", "mcts:simulations=60"], seed=seed)
        dealt = [event.outcome for event in events_of(log) if hasattr(event, "outcome")]
        taken = turns(events_of(log))
        if taken[0].action == "bet":
            answer = taken[1].action
            assert (dealt[1], answer) not in {("Jack", "bet"), ("King", "pass")}
        assert not replay_match(log.read(MATCH)).differences
