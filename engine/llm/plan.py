"""What the engine process is told about a record: where it is read, and where it may be reused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from engine.errors import BadRequest
from engine.llm.settings import KEY
from engine.tokens import Record, RecordField


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Travels in a request's `extra_args`; positions are token indices.

    Attributes:
        fields: Where questions and options stand; none in a state that is only read ahead.
        state_start: Where the state starts; before that all records are alike.
        public_end: Where the part of the state ends that records of other states share.
        state_end: Where the state ends.
        siblings: Other records on the same state that come along.
        salt: Keeps what is read for one tenant from another.
    """

    fields: tuple[RecordField, ...]
    state_start: int
    public_end: int
    state_end: int
    siblings: int = 0
    salt: str = ""

    @property
    def limit(self) -> int:
        """The first question: from here on every row has to be read, whatever is kept."""
        return min((field.question_span[0] for field in self.fields), default=self.state_end)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came back for one record.

    Attributes:
        logits: Of its options in order; none of a state that was read ahead.
        first_step: Number of the engine step that first read a part of it.
        last_step: Number of the step that completed it.
        missed: Why less was reused than could have been; empty if nothing was missed.
        reused: Tokens.
    """

    logits: list[float]
    first_step: int
    last_step: int
    missed: str
    reused: int = 0

    @property
    def steps(self) -> int:
        """Engine steps from the first to the last."""
        return 1 + self.last_step - self.first_step


def plan_of(record: Record, *, state_start: int, siblings: int, salt: str) -> ReadPlan:
    """Give the plan of a record.

    Raises:
        BadRequest: A question without options, or a span that is empty or outside the record.
    """
    length = len(record.input_ids)
    for number, field in enumerate(record.fields, 1):
        if not field.option_spans:
            raise BadRequest(f"question {number} has no options; give it one at least")
        for start, end in (field.question_span, *field.option_spans):
            if not record.state_end <= start < end <= length:
                raise BadRequest(
                    f"question {number}: the span {start} to {end} is empty or outside what follows"
                    f" the state, tokens {record.state_end} to {length}; encode the record again"
                )
    return ReadPlan(
        fields=record.fields,
        state_start=state_start,
        public_end=record.public_end,
        state_end=record.state_end,
        siblings=siblings,
        salt=salt,
    )


def prime_plan(public_end: int, state_end: int) -> ReadPlan:
    """Give the plan of a state that is read ahead."""
    return ReadPlan(fields=(), state_start=0, public_end=public_end, state_end=state_end)


def find_plan(sampling_params: Any) -> ReadPlan | None:
    """Find the plan in a request's sampling parameters; None if it is no record."""
    arguments: Mapping[str, Any] = (sampling_params and sampling_params.extra_args) or {}
    plan = arguments.get(KEY)
    return None if plan is None else msgspec.convert(plan, ReadPlan)
