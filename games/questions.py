"""What may be asked of a state: questions, their options, and the probabilities that come back."""

from __future__ import annotations

from typing import Literal

import msgspec

QuestionType = Literal["choice", "score", "noul"]
"""`choice` picks one of named options, `score` a level, `noul` whether a statement is true."""

TRUE = "The proposition is true or the answer is yes."
FALSE = "The proposition is false or the answer is no."


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that can be chosen.

    Attributes:
        id: The label. Among the options of one question it is unique; an action *is* its label.
        description: Facts about it that the code can compute (a threat, a price), or None.
        parts: For games whose options are factored, the label of each part, such as
            `("row 3", "column 14")`; empty otherwise.
    """

    id: str
    description: str | None = None
    parts: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One ask on a state; make it with `choice`, `score` or `noul`.

    Attributes:
        id: Names the answer. Keep it constant from turn to turn.
        options: In the order in which their probabilities are reported.
    """

    id: str
    type: QuestionType
    instructions: str
    options: tuple[Option, ...]


class Answer(msgspec.Struct, frozen=True):
    """The reply to one question: one probability for each of its options, in their order."""

    question: str
    probabilities: tuple[float, ...]


def choice(id: str, instructions: str, options: tuple[Option, ...]) -> Question:
    """Ask which of `options` to take."""
    return Question(id=id, type="choice", instructions=instructions, options=options)


def score(id: str, instructions: str, levels: tuple[str, ...]) -> Question:
    """Ask for a level; `levels` describe them from 0 upwards."""
    options = tuple(Option(str(level), text) for level, text in enumerate(levels))
    return Question(id=id, type="score", instructions=instructions, options=options)


def noul(id: str, instructions: str, *, true: str = TRUE, false: str = FALSE) -> Question:
    """Ask whether a statement is true; option 0 is `true`."""
    options = (Option("true", true), Option("false", false))
    return Question(id=id, type="noul", instructions=instructions, options=options)
