"""Two agents: one looks for a word in what the game says of its options, one asks the model."""

from __future__ import annotations

from games import Game
from runtime.agents import Act, Agent, Turn
from runtime.errors import CannotPlay


class Eager(Agent):
    """`eager`, `eager:word=wins`: takes an option whose description has a word, else any."""

    def __init__(self, word: str = "wins") -> None:
        self._word = word

    async def act(self, turn: Turn) -> Act:
        for option in turn.options:
            if self._word in (option.description or ""):
                return Act(option.id)
        draw = turn.draw()
        return Act(turn.options[int(draw * len(turn.options))].id, draw)


class Sure(Agent):
    """`sure`, `sure:least=0.5`: does as the model says where it is sure, else takes the first."""

    asks = True

    def __init__(self, least: str = "0.5") -> None:
        self._least = float(least)

    def check(self, game: Game) -> None:
        if game.facts.factors:
            raise CannotPlay(f"{game.facts.id} asks for an action in parts, which sure does not")

    async def act(self, turn: Turn) -> Act:
        answers = await turn.ask(turn.questions())
        most = max(answers[0].probabilities)
        best = answers[0].probabilities.index(most) if most >= self._least else 0
        return Act(turn.options[best].id)
