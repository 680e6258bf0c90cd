"""In which order decisions are read; without a model, and counted in steps."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("vllm")

from tests.support.steps import Steps

pytestmark = pytest.mark.vllm


def ids(seed: int, count: int) -> list[int]:
    return [(seed * 7919 + place * (seed + 3)) % 1000 for place in range(count)]


def run(steps: Steps) -> None:
    while steps.scheduler.requests:
        steps.step()
        assert steps.number < 1000


def run_alone(length: int) -> int:
    """Count the steps of a question on a new state with nobody beside it."""
    steps = Steps()
    steps.decision("d", ids(7, length))
    run(steps)
    return steps.number


@pytest.mark.parametrize("length", [200, 900, 1500, 3000])
def test_earlier_deadlines_go_first(length):
    steps = Steps(seats=32)
    dues = random.Random(length).sample(range(1000), 24)
    for due in dues:
        steps.decision(f"{due}", ids(due, length), due=due)
    run(steps)
    order = [steps.ended[f"{due}"] for due in sorted(dues)]
    assert order == sorted(order)
    assert order[-1] > order[0]


def test_a_later_one_overtakes_where_its_deadline_is_earlier():
    steps = Steps()
    for number in range(12):
        steps.decision(f"d{number}", ids(number, 1500), due=1000 + number)
    steps.step()
    steps.decision("urgent", ids(99, 1500), due=1)
    run(steps)
    assert steps.ended["urgent"] <= sorted(steps.ended.values())[2]


def test_what_is_under_way_is_as_urgent_as_whoever_waits_for_it():
    steps = Steps(tokens=1024)
    state = ids(1, 6000)
    steps.decision("reads", state, due=1000)
    steps.step()
    steps.decision("waits", state, due=1)
    steps.decision("other", ids(2, 6000), due=500)
    run(steps)
    assert steps.ended["waits"] < steps.ended["other"]


@pytest.mark.parametrize("speculative", [None, {"method": "mtp", "num_speculative_tokens": 1}])
def test_questions_on_one_state_are_read_in_one_step(speculative):
    steps = Steps(seats=16, speculative=speculative)
    state = ids(1, 3000)
    for turn in range(2):
        for number in range(8):
            steps.decision(f"{turn}.{number}", state, due=100 - number)
        read = 0
        while steps.scheduler.requests:
            read += sum(steps.step().values())
        new = 3000 if turn == 0 else 0
        assert read <= new + 8 * (40 + 16)
    first, *others = [steps.ended[f"0.{number}"] for number in reversed(range(8))]
    assert set(others) == {first + 1}  # the first read it for all
    assert {steps.ended[f"1.{number}"] for number in range(8)} == {steps.number}


FLOODS = {
    "questions on one state": lambda steps, number: steps.decision(
        f"f{number}", ids(1, 3000), due=number
    ),
    "questions on long states": lambda steps, number: steps.decision(
        f"f{number}", ids(number, 9000), due=number
    ),
    "one long state": lambda steps, number: (
        None if "f" in steps.scheduler.requests else steps.decision("f", ids(number, 30_000))
    ),
    "chats": lambda steps, number: steps.chat(f"f{number}", ids(number, 3000), tokens=5),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_delays_a_lone_question_by_one_step_at_most(flood):
    lengths = [10, 300, 935, 1500, 1950]
    alone = {length: run_alone(length) for length in lengths}
    steps = Steps(seats=32)
    number = 0

    def step() -> None:
        nonlocal number
        for _ in range(30 - len(steps.scheduler.requests)):
            number += 1
            FLOODS[flood](steps, number)
        steps.step()

    for _ in range(6):
        step()
    for lead in range(3):
        for length in lengths:
            name, came = f"lone {lead} {length}", steps.number
            steps.decision(name, ids(10_000 + 10 * lead + length, length), due=10**6)
            while name not in steps.ended:
                step()
                assert steps.number - came < 50
            assert steps.ended[name] - came <= alone[length] + 1, name
            for _ in range(lead):
                step()


@pytest.mark.parametrize("flood", ["questions on one state", "chats"])
def test_a_flood_of_short_ones_leaves_a_long_one_half_of_every_step(flood):
    alone = run_alone(9000)
    steps = Steps(seats=32)
    number = 0
    while "lone" not in steps.ended:
        for _ in range(30 - len(steps.scheduler.requests)):
            number += 1
            FLOODS[flood](steps, number)
        steps.step()
        if steps.number == 6:
            steps.decision("lone", ids(10_000, 9000), due=10**6)
        assert steps.number < 6 + 2 * alone + 2


def test_of_two_long_ones_the_earlier_deadline_goes_first_whichever_came_first():
    alone = run_alone(9000)
    steps = Steps()
    steps.decision("began", ids(1, 30_000), due=1000)
    for _ in range(3):
        steps.step()
    steps.decision("urgent", ids(2, 9000), due=1)
    run(steps)
    assert steps.ended["urgent"] - 3 <= alone + 2  # left out of one, with half of the next
    assert steps.ended["began"] == steps.number


def test_the_order_takes_nothing_from_a_step():
    steps = Steps(seats=32)
    for number in range(20):
        steps.decision(f"long {number}", ids(number, 9000), due=number)
    for number in range(20):
        steps.decision(f"short {number}", ids(100 + number, 100), due=1000 + number)
        assert sum(steps.step().values()) > 2048 - 2 * 128


def test_chats_have_no_priority():
    steps = Steps(seats=1)
    for number, due in enumerate((5, -9, 0)):
        steps._add(f"chat {number}", ids(number, 50), 2, None, due)
    run(steps)
    assert list(steps.ended) == ["chat 0", "chat 1", "chat 2"]
