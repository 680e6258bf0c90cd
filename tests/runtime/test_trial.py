from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from games import load_game
from games.testing import check
from games.trial import TRIALS
from games.trial import Trial as TrialGame
from runtime.agents import Act, Agent, Turn, make_agent, registry
from runtime.errors import AgentBroken, BadInput, CannotPlay, UnknownAgent
from runtime.trial import GAMES, try_agent


@pytest.fixture
def flawed(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Agent]], None]:
    """Makes a class the agent `flawed`."""

    def install(kind: type[Agent]) -> None:
        monkeypatch.setitem(registry._FACTORIES, "flawed", lambda parameters: kind())

    return install


async def refused(spec: str = "flawed", games: tuple[str, ...] = ("tictactoe",)) -> str:
    with pytest.raises(AgentBroken) as caught:
        await try_agent(spec, games, seeds=2, deadline_s=5)
    return str(caught.value)


@pytest.mark.parametrize(
    "spec", ["random", "decision", "decision:temperature=1,top_p=0.8", "mcts:simulations=8"]
)
async def test_agents_that_ship_keep_every_law(spec: str) -> None:
    tried = await try_agent(spec, GAMES, seeds=2, deadline_s=60)
    assert [each.game for each in tried] == list(GAMES)
    assert all(each.turns and each.matches == 2 and not each.refused for each in tried)
    asks = make_agent(spec).asks
    assert all(bool(each.decisions) == asks for each in tried)


async def test_games_that_an_agent_does_not_play_are_noted() -> None:
    tried = await try_agent(
        "minimax:nodes=200", ("tictactoe", "kuhn_poker"), seeds=1, deadline_s=60
    )
    assert [bool(each.refused) for each in tried] == [False, True]
    with pytest.raises(CannotPlay, match="minimax plays none of these games: minimax needs"):
        await try_agent("minimax", ("kuhn_poker",), seeds=1, deadline_s=60)


async def test_what_cannot_be_tried_is_refused() -> None:
    with pytest.raises(BadInput, match="human waits for a person"):
        await try_agent("human", GAMES, seeds=1, deadline_s=1)
    with pytest.raises(UnknownAgent):
        await try_agent("nobody", GAMES, seeds=1, deadline_s=1)


@pytest.mark.parametrize("name", TRIALS)
def test_games_made_for_it_keep_the_laws_of_games(name: str) -> None:
    assert check(TrialGame(name), seeds=3).turns == 18


async def test_label_that_is_not_offered(flawed: Any) -> None:
    class Flawed(Agent):
        async def act(self, turn: Turn) -> Act:
            return Act("nowhere" if turn.index else turn.options[0].id)

    flawed(Flawed)
    assert await refused() == (
        "flawed breaks the law 'label', tictactoe, seed 0, turn 2: it named 'nowhere', which is"
        " not offered"
    )


async def test_label_that_is_cut(flawed: Any) -> None:
    class Flawed(Agent):
        async def act(self, turn: Turn) -> Act:
            return Act(turn.options[-1].id[:100])

    flawed(Flawed)
    await try_agent("flawed", ("tictactoe", "trial:many"), seeds=2, deadline_s=5)
    message = await refused(games=("trial:labels",))
    assert "the law 'label', trial:labels, seed 0, turn 0: it named 'xxx" in message


async def test_raising(flawed: Any) -> None:
    class Flawed(Agent):
        async def act(self, turn: Turn) -> Act:
            raise KeyError(turn.seat)

    flawed(Flawed)
    message = "flawed breaks the law 'act', tictactoe, seed 0, turn 0: it raised KeyError: 0"
    assert await refused() == message


async def test_not_coming_back(flawed: Any) -> None:
    class Flawed(Agent):
        deadline_s = 0.01

        async def act(self, turn: Turn) -> Act:
            if turn.number > 2:
                await anyio.sleep_forever()
            return Act(turn.options[0].id)

    flawed(Flawed)
    message = "'time', tictactoe, seed 0, turn 4: it gave no action within 0.01 s"
    assert message in await refused()


async def test_chance_of_its_own(flawed: Any) -> None:
    source = random.Random(1)

    class Flawed(Agent):
        async def act(self, turn: Turn) -> Act:
            return Act(source.choice(turn.options).id)

    flawed(Flawed)
    assert "breaks the law 'seed', tictactoe" in (message := await refused())
    assert "take what looks random from turn.draw()" in message


async def test_memory_that_a_restart_loses(flawed: Any) -> None:
    class Flawed(Agent):
        def __init__(self) -> None:
            self._seen: dict[int, int] = {}

        async def act(self, turn: Turn) -> Act:
            self._seen = {} if turn.index == 0 else self._seen
            self._seen[turn.index] = 1
            return Act(turn.options[len(self._seen) % len(turn.options)].id)

    flawed(Flawed)
    assert "breaks the law 'resume', tictactoe, seed 0, turn 2" in (message := await refused())
    assert "has to be in the turn" in message


async def test_matches_that_disturb_one_another(flawed: Any) -> None:
    class Flawed(Agent):
        busy = 0

        async def act(self, turn: Turn) -> Act:
            self.busy += 1
            index = min(self.busy, len(turn.options)) - 1
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            self.busy -= 1
            return Act(turn.options[index].id)

    flawed(Flawed)
    assert "breaks the law 'company', tictactoe" in await refused()


async def test_not_bearing_a_model_that_fails(flawed: Any) -> None:
    class Flawed(Agent):
        asks = True

        async def act(self, turn: Turn) -> Act:
            try:
                await turn.ask(turn.questions())
            except Exception as error:
                raise RuntimeError("no answer") from error
            return Act(turn.options[0].id)

    flawed(Flawed)
    assert "'act', tictactoe, seed 0, turn 0: it raised RuntimeError: no answer" in await refused()


async def test_label_of_a_part_where_the_whole_is_wanted(flawed: Any) -> None:
    class Flawed(Agent):
        asks = True

        async def act(self, turn: Turn) -> Act:
            question, *_ = questions = turn.questions()
            answers = await turn.ask(questions)
            best = answers[0].probabilities.index(max(answers[0].probabilities))
            return Act(question.options[best].id)

    flawed(Flawed)
    await try_agent("flawed", ("tictactoe", "trial:many"), seeds=1, deadline_s=60)
    assert "'label', trial:parts, seed 0, turn 0: it named 'row " in await refused(
        games=("trial:parts",)
    )


async def test_every_turn_is_announced_before_it_is_taken() -> None:
    places: list[str] = []
    await try_agent("random", ("tictactoe",), seeds=1, deadline_s=60, on_turn=places.append)
    assert places[0] == "tictactoe, seed 0, turn 0"


def test_default_games_are_there() -> None:
    assert all(name in TRIALS or load_game(name) for name in GAMES)
