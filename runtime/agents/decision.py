"""Asks a decision model and lets a policy choose among its probabilities."""

from __future__ import annotations

from runtime.agents.base import Act, Agent, Turn
from runtime.policy import Policy
from runtime.requests import action_of, complete


class DecisionAgent(Agent):
    """`decision`, `decision:temperature=0.7`, `decision:floor=0.01`, `decision:top_p=0.9`."""

    asks = True

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def act(self, turn: Turn) -> Act:
        """Ask the game's questions; for a factored action, part by part."""
        chosen, draw = complete(turn.options, ()), None
        while (action := action_of(turn.options, chosen)) is None:
            questions = turn.questions(chosen)
            answers = await turn.ask(questions, chosen=chosen, draw=draw)
            draw = turn.draw(len(chosen)) if self._policy.draws else None
            index = self._policy.choose(answers[0].probabilities, draw)
            label = questions[0].options[index].id
            chosen = complete(turn.options, (*chosen, label))
        return Act(action, draw)
