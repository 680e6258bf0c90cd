"""How long an agent may think, and what becomes of one that raises or gives no action."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio

from engine.errors import EngineError
from games.errors import ConformanceError
from games.questions import Answer, Question
from runtime.agents.base import Act, Agent, Asker, Turn
from runtime.errors import AgentFailed, RuntimeFault, first_of
from store.errors import StoreError
from store.events import ChatCost

NOT_ITS_FAULT = (RuntimeFault, StoreError, ConformanceError)
"""Raised through an agent, and not by it: the run stops there."""

_SHOWN = 200  # characters of what an agent raised


class Patience:
    """One turn's time. While the agent waits for a model, which has its own deadline, it stands."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._scope = anyio.CancelScope()

    def excluding(self, ask: Asker) -> Asker:
        """Give the same, with the time that it takes not counted."""

        async def asked(
            turn: Turn, questions: Sequence[Question], chosen: tuple[str, ...], draw: float | None
        ) -> tuple[Answer, ...]:
            scope = self._scope
            left_s, scope.deadline = scope.deadline - anyio.current_time(), math.inf
            try:
                return await ask(turn, questions, chosen, draw)
            finally:
                scope.deadline = anyio.current_time() + left_s

        return asked

    async def act(self, agent: Agent, turn: Turn) -> Act:
        """Let an agent act.

        Raises:
            AgentFailed: It raised something, took too long, or gave something else than an Act.
            EngineError: Of a question that it asked.
            RuntimeFault, StoreError, ConformanceError: What is no fault of the agent.
        """
        self._scope.deadline = anyio.current_time() + self._limit_s
        act: object = None
        try:
            with self._scope:
                act = await agent.act(turn)
        except (EngineError, *NOT_ITS_FAULT):
            raise
        except Exception as error:
            inner = first_of(error)
            if isinstance(inner, (EngineError, *NOT_ITS_FAULT)):
                raise inner from error
            raise AgentFailed(f"it raised {type(inner).__name__}: {_shown(str(inner))}") from error
        if self._scope.cancelled_caught:
            raise AgentFailed(f"it gave no action within {self._limit_s:g} s")
        if not isinstance(act, Act) or not _is_sound(act):
            raise AgentFailed(f"it gave {_shown(repr(act))}, which is no Act with a label and draw")
        return act


def _is_sound(act: Act) -> bool:
    draw = act.draw
    drawn = draw is None or (isinstance(draw, float) and 0 <= draw < 1)
    return isinstance(act.action, str) and drawn and isinstance(act.chat, ChatCost | None)


def _shown(text: str) -> str:
    """What an agent says may hold what no event can."""
    return " ".join(text[:_SHOWN].encode(errors="backslashreplace").decode().split())
