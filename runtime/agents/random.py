"""Takes any legal option, each as likely."""

from __future__ import annotations

from runtime.agents.base import Act, Agent, Turn
from runtime.draws import uniform


class RandomAgent(Agent):
    """`random`. Its choice is a function of the match's seed, the seat and the turn."""

    quick = True

    async def act(self, turn: Turn) -> Act:
        """Take the option that the turn's draw falls on."""
        draw = turn.draw()
        return Act(turn.options[uniform(draw, len(turn.options))].id, draw)
