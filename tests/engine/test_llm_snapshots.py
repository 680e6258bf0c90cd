from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from engine.llm.plan import ReadPlan
from engine.llm.snapshots import Stops
from engine.tokens import RecordField

pytestmark = pytest.mark.vllm


def stops(public_end: int, state_end: int) -> Stops:
    plan = ReadPlan(
        fields=(RecordField(1, (state_end + 9, state_end + 10), ()),),
        state_start=0,
        public_end=public_end,
        state_end=state_end,
    )
    return Stops(plan, 16)


@pytest.mark.parametrize(
    ("start", "end", "several", "last", "expected"),
    [
        (0, 900, False, True, 496),  # the public part's last unit, over a border of blocks
        (0, 900, True, True, 496),
        (496, 900, True, True, 592),  # then the state's, if somebody waits for it
        (496, 900, False, True, 900),
        (592, 900, True, True, 900),
        (0, 450, False, False, 384),  # cut short: a border of blocks
        (384, 450, False, False, 450),  # none on the way
        (0, 500, False, False, 496),
        (0, 300, False, False, 300),
    ],
)
def test_steps_end_where_others_go_on(
    start: int, end: int, several: bool, last: bool, expected: int
):
    options: Any = {"several": several, "block": 384, "last": last}
    assert stops(500, 600).next_end(start, end, **options) == expected


def test_no_public_part_no_stop():
    assert stops(0, 600).next_end(0, 900, several=False, block=384, last=True) == 900
