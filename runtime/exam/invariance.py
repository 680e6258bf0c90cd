"""What must not change an answer: how options are ordered, what else is asked, who asks beside."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

import anyio
import msgspec

from games.questions import Option, Question
from games.solved import Position
from runtime.exam.asking import Asker

_COMPANIONS = 7


class Change(NamedTuple):
    """How answers to the action question differ when something is changed that should not matter.

    Attributes:
        largest: Of all differences of a probability.
        same: Share in which the most probable option stays.
    """

    what: str
    pairs: int
    largest: float
    same: float


class _Pairs:
    def __init__(self, what: str) -> None:
        self._what = what
        self._largest = 0.0
        self._same: list[bool] = []

    def add(self, one: Sequence[float], other: Sequence[float]) -> None:
        differences = [abs(a - b) for a, b in zip(one, other, strict=True)]
        self._largest = max(self._largest, *differences)
        self._same.append(one.index(max(one)) == other.index(max(other)))

    def result(self) -> Change:
        number = len(self._same)
        return Change(self._what, number, self._largest, sum(self._same) / number)


async def changes(asker: Asker, positions: Sequence[Position]) -> list[Change]:
    """Ask every position's first question again and again, with something changed.

    The order in which a request lists a choice's options plays no part, because the record sorts
    them by id; to change the record's order, the options are named by letters, once in their order
    and once against it.
    """
    listed = _Pairs("options reversed in the request")
    named = _Pairs("options reversed in the record")
    others = _Pairs("other questions beside")
    joint = _Pairs("other questions, one record")
    company = _Pairs(f"{_COMPANIONS} other states beside")
    for index, position in enumerate(positions):
        question = position.judged[0].question
        several = [judged.question for judged in position.judged]
        [alone] = await asker.ask(position.view, [question])
        turned = msgspec.structs.replace(question, options=question.options[::-1])
        [back] = await asker.ask(position.view, [turned])
        listed.add(alone, back[::-1])
        [forwards] = await asker.ask(position.view, [_lettered(question, reverse=False)])
        [backwards] = await asker.ask(position.view, [_lettered(question, reverse=True)])
        named.add(forwards, backwards)
        others.add(alone, (await asker.ask(position.view, several))[0])
        joint.add(alone, (await asker.ask(position.view, several, "joint"))[0])
        beside = [positions[(index + n) % len(positions)] for n in range(1, _COMPANIONS + 1)]
        company.add(alone, await _in_company(asker, position, beside))
    return [each.result() for each in (listed, named, others, joint, company)]


def _lettered(question: Question, *, reverse: bool) -> Question:
    letters = string.ascii_letters[: len(question.options)]
    options = tuple(
        Option(letter, f"{option.id}: {option.description}" if option.description else option.id)
        for letter, option in zip(
            letters[::-1] if reverse else letters, question.options, strict=True
        )
    )
    return msgspec.structs.replace(question, options=options)


async def _in_company(
    asker: Asker, position: Position, beside: Sequence[Position]
) -> tuple[float, ...]:
    found: list[tuple[float, ...]] = []

    async def ask(each: Position, *, kept: bool) -> None:
        [answer] = await asker.ask(each.view, [each.judged[0].question])
        if kept:
            found.append(answer)

    async with anyio.create_task_group() as group:
        for each in beside:
            group.start_soon(lambda each=each: ask(each, kept=False))
        group.start_soon(lambda: ask(position, kept=True))
    return found[0]
