"""A question together with the answer that is right."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from games.base import View
from games.questions import Option, Question, noul, score

TEST_PERCENT: Final = 12


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its solution.

    Attributes:
        question: As the game asks it.
        target: The right probability of each option, in the options' order.
        values: What best play gets after each option, where options are actions.
    """

    question: Question
    target: tuple[float, ...]
    values: tuple[float, ...] | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """What one seat sees, with judged questions; the first of them chooses the action.

    Attributes:
        key: Names the position, not how it came about; what may be learned and what is tested is
            told apart by it.
        test: It belongs to the tested ones and must not be learned.
    """

    game: str
    key: str
    test: bool
    view: View
    judged: tuple[Judged, ...]


def is_test(key: str) -> bool:
    """Say whether a position of this key is for tests: a fixed share of all, by SHA-256."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8]) % 100 < TEST_PERCENT


def evenly(values: Sequence[float]) -> tuple[float, ...]:
    """Give the distribution that is even over the best values."""
    best = max(values)
    right = [value >= best - 1e-9 for value in values]
    return tuple(each / sum(right) for each in right)


def softly(values: Sequence[float], temperature: float) -> tuple[float, ...]:
    """Give the softmax of values over a temperature: nearly equal ones get nearly the same."""
    best = max(values)
    weights = [math.exp((value - best) / temperature) for value in values]
    return tuple(weight / sum(weights) for weight in weights)


def judged_noul(id: str, instructions: str, probability: float) -> Judged:
    """Judge a statement that is true with this probability."""
    return Judged(question=noul(id, instructions), target=(probability, 1.0 - probability))


def judged_score(id: str, instructions: str, levels: tuple[str, ...], level: int) -> Judged:
    """Judge a question whose level is known."""
    target = tuple(float(each == level) for each in range(len(levels)))
    return Judged(question=score(id, instructions, levels), target=target)


def judged_choice(
    id: str, instructions: str, options: Sequence[Option], right: Sequence[str]
) -> Judged:
    """Judge a choice of which these option ids are equally right."""
    target = tuple((option.id in right) / len(right) for option in options)
    question = Question(id=id, type="choice", instructions=instructions, options=tuple(options))
    return Judged(question=question, target=target)
