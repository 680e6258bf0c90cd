"""States are read ahead while a seat thinks, and nothing but time depends on it."""

from __future__ import annotations

import pytest

from engine.contract import Prime
from engine.errors import RequestTooLarge
from games.registry import load_game
from runtime.agents import Act, Agent, Turn, make_agent
from runtime.match import Match
from runtime.table import Seat, Table, Terms
from runtime.tally import Tally
from store.events import DecisionAnswered, TurnTaken
from store.memory import MemoryLog
from tests.support.engines import DirectEngine
from tests.support.matches import MATCH, events_of, play_one, timeless, turns

TICTACTOE = load_game("tictactoe")
HOLDEM = load_game("holdem")


class Thinker(Agent):
    """Takes the first option; a test can look at what happened before it acts."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    async def act(self, turn: Turn) -> Act:
        self.turns.append(turn)
        return Act(turn.options[0].id)


async def test_what_a_seat_will_be_asked_about_is_read_while_another_thinks():
    log, engine = MemoryLog(), DirectEngine()
    durable: list[int] = []
    prime = engine.prime

    async def note(each: Prime) -> None:
        durable.append(len(turns(events_of(log))))
        await prime(each)

    engine.prime = note
    thinker = Thinker()
    await play_one(TICTACTOE, [thinker, "decision"], engine=engine, log=log)
    assert len(engine.primes) == len(thinker.turns) > 2
    taken = [number for number, event in enumerate(turns(events_of(log))) if event.how == "agent"]
    assert durable == taken  # all turns before are in the log
    asked = iter(engine.requests)
    for each in engine.primes[:-1]:
        request = next(asked)
        assert each.affinity == request.affinity == MATCH
        assert request.ask.state.startswith(each.state[: each.public_end])
        assert 0 < each.public_end < request.ask.public_end


async def test_it_is_the_view_of_the_seat_that_will_ask():
    engine = DirectEngine()
    await play_one(HOLDEM, [Thinker(), "decision"], engine=engine)
    hands = {request.ask.state[request.ask.public_end :] for request in engine.requests}
    assert {prime.state[prime.public_end :] for prime in engine.primes} & hands


@pytest.mark.parametrize("agents", [["decision", "decision"], ["random", "decision"]])
async def test_nothing_is_read_ahead_where_it_gains_no_time(agents):
    engine = DirectEngine()
    await play_one(TICTACTOE, agents, engine=engine)
    assert engine.requests
    assert engine.primes == []


async def test_each_model_reads_while_the_other_is_asked():
    engines = DirectEngine("mock:seed=1"), DirectEngine("mock:seed=2")
    seats = tuple(Seat("decision", make_agent("decision"), engine) for engine in engines)
    table = Table(
        log=MemoryLog(), game=TICTACTOE, seats=seats, engine=None, terms=Terms(), tally=Tally()
    )
    await Match.new(table, MATCH, seed=1).run()
    for engine, other in (engines, engines[::-1]):
        assert len(engine.primes) == len(other.requests) > 2


async def test_a_prime_that_cannot_be_sent_changes_nothing():
    async def refuse(prime: Prime) -> None:
        raise RequestTooLarge("the message is too large")

    found = []
    for broken in (False, True):
        engine = DirectEngine()
        if broken:
            engine.prime = refuse
        log, result = await play_one(TICTACTOE, [Thinker(), "decision"], engine=engine)
        events = events_of(log)
        assert any(isinstance(event, DecisionAnswered) for event in events)
        assert any(isinstance(event, TurnTaken) for event in events)
        found.append((timeless(events), result))
    assert found[0] == found[1]
