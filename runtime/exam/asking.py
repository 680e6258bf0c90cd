"""Asks a model about positions, and gives probabilities in the order of the question's options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal, Protocol

from engine.contract import DecisionReply, DecisionRequest
from engine.records import ask_from_questions
from games.base import View
from games.questions import Question

Form = Literal["independent", "joint"]
_DEADLINE_S = 600.0


class Decides(Protocol):
    """A model that answers one request."""

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Answer it."""
        ...


class Asker:
    """Numbers the requests of one exam."""

    def __init__(self, model: Decides) -> None:
        self._model = model
        self._numbers = count(1)

    async def ask(
        self, view: View, questions: Sequence[Question], form: Form = "independent"
    ) -> list[tuple[float, ...]]:
        """Give for each question the probabilities of its options.

        Args:
            view: What the seat sees.
            questions: What to ask.
            form: Each in a record of its own as matches have it, or all in one as released.

        Raises:
            EngineError: There is no answer.
        """
        ask = ask_from_questions(
            state=view.text,
            public_end=len(view.public),
            questions=questions,
            form=form,
            record="release" if form == "joint" else "neutral",
        )
        request = DecisionRequest(
            id=f"exam {next(self._numbers)}",
            attempt=1,
            source="exam",
            affinity="exam",
            remaining_s=_DEADLINE_S,
            ask=ask,
        )
        reply = await self._model.decide(request)
        found: list[tuple[float, ...]] = []
        for question, answer in zip(questions, reply.answers, strict=True):
            by_id = dict(zip(answer.option_ids, answer.probabilities, strict=True))
            found.append(tuple(by_id[option.id] for option in question.options))
        return found
