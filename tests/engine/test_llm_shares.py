"""How chat and decisions share the engine's steps; without a model, and counted in steps."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from tests.support.steps import BLOCK, Steps

pytestmark = pytest.mark.vllm


def ids(seed: int, count: int) -> list[int]:
    return [(seed * 7919 + place * (seed + 3)) % 1000 for place in range(count)]


def test_a_side_alone_has_the_whole_step():
    steps = Steps()
    steps.chat("long", ids(1, 30_000))
    assert sum(steps.step().values()) > 2048 - 128
    steps.give_up("long")
    for number in range(8):
        steps.decision(f"d{number}", ids(number, 700))
    assert sum(steps.step().values()) > 2048 - 128


@pytest.mark.parametrize("lead", range(4))
def test_a_long_prompt_does_not_delay_a_known_state(lead):
    steps = Steps()
    state = ids(5, 3000)
    steps.decision("first", state)
    while "first" not in steps.ended:
        steps.step()
    for number in range(3):
        steps.chat(f"long {number}", ids(9 + number, 30_000))
    for _ in range(1 + lead):
        steps.step()
    came = steps.number
    steps.decision("known", state)
    while "known" not in steps.ended:
        steps.step()
    assert steps.ended["known"] - came <= 2
    assert "long 0" not in steps.ended


def flood(steps: Steps, number: int, *, length: int = 3000) -> int:
    """Keep twenty decisions on states of their own waiting."""
    while len(steps.scheduler.requests) < 20:
        number += 1
        steps.decision(f"flood {number}", ids(number, length))
    return number


def test_a_flood_of_decisions_does_not_stop_a_chat():
    steps = Steps()
    steps.chat("stream", ids(100_000, 50))
    steps.step()
    number, before = 0, steps.came["stream"]
    for _ in range(40):
        number = flood(steps, number)
        given = steps.step()
        assert given["stream"] == 1
        assert sum(given.values()) > 2048 // 2
    assert steps.came["stream"] == before + 40


def test_a_flood_of_decisions_leaves_a_new_chat_its_share():
    steps = Steps()
    number = flood(steps, 0)
    for _ in range(10):
        steps.step()
        number = flood(steps, number)
    steps.chat("new", ids(100_000, 10_000), tokens=5)
    came, given = steps.number, 0
    while "new" not in steps.ended:
        given += steps.step().get("new", 0)
        number = flood(steps, number)
        assert steps.number - came < 60
    assert given == 10_004
    print(f"10,000 tokens of a chat beside a flood: {steps.number - came} steps")


def test_many_chats_leave_seats_for_decisions():
    steps = Steps(seats=8)
    for number in range(20):
        steps.chat(f"chat {number}", ids(number, 50))
    for _ in range(3):
        steps.step()
    assert len(steps.scheduler.running) == 2
    steps.decision("d", ids(99, 300))
    steps.step()
    steps.step()
    assert steps.ended["d"] == steps.number


def test_a_chat_that_finds_no_memory_lets_decisions_pass():
    steps = Steps(blocks=120)
    steps.chat("first", ids(1, 6000), tokens=200)
    steps.step()
    steps.chat("second", ids(2, 12_000), tokens=1)
    for number in range(6):
        came = steps.number
        steps.decision(f"d{number}", ids(10 + number, 200))
        while f"d{number}" not in steps.ended:
            steps.step()
        assert steps.number - came <= 3  # a state of its own is two steps
    while "second" not in steps.ended:
        steps.step()
        assert steps.number < 300


def test_a_short_prompt_is_one_step_and_a_long_one_serves_the_next_turn():
    steps = Steps()
    steps.chat("short", ids(1, 100), tokens=1)
    assert steps.step() == {"short": 100}
    turn = ids(2, 700)
    steps.chat("turn", turn, tokens=1)
    assert steps.step() == {"turn": 688}
    assert steps.step() == {"turn": 12}
    steps.chat("next", [*turn, *ids(3, 90)], tokens=1)
    assert steps.step() == {"next": 784 - 688}
    assert steps.step() == {"next": 6}


def test_chats_that_part_reuse_what_they_share():
    steps = Steps()
    shared = ids(4, 1000)
    read = {}
    for number in range(3):
        steps.chat(f"c{number}", [*shared, *ids(50 + number, 200)], tokens=1)
        read[number] = 0
        while f"c{number}" not in steps.ended:
            read[number] += steps.step().get(f"c{number}", 0)
    assert read == {0: 1200, 1: 1200, 2: 1200 - 896}


def test_a_chat_agent_s_turns_reuse_the_view_of_two_turns_before():
    steps = Steps()
    view, options = ids(4, 300), 60  # the view grows, other options stand behind it
    read = []
    for number in range(6):
        prompt = [*view, *ids(50 + number, options)]
        steps.chat(f"c{number}", prompt, tokens=1)
        read.append(0)
        while f"c{number}" not in steps.ended:
            read[-1] += steps.step().get(f"c{number}", 0)
        view += ids(80 + number, 150)
    before = [300 + 150 * (number - 2) for number in range(6)]
    lengths = [300 + 150 * number + options for number in range(6)]
    assert read[:2] == lengths[:2]
    for number in range(2, 6):
        assert read[number] == lengths[number] - before[number] // BLOCK * BLOCK


def test_a_prime_leaves_everything_read():
    for public in (3000, 2000):
        steps = Steps()
        state = ids(1, 3000)
        steps.prime("prime", state, public=public)
        read = 0
        while "prime" not in steps.ended:
            read += steps.step().get("prime", 0)
        assert read == 3000 // 16 * 16
        steps.decision("d", state, public=public)
        assert steps.step() == {"d": 3040 - 2992}
        assert steps.ended["d"] == steps.number
        steps.prime("again", state, public=public)
        assert steps.step() == {}
        assert steps.ended["again"] == steps.number


def test_a_prime_grows_from_what_is_known():
    steps = Steps()
    state = ids(1, 1000)
    for number in range(3):
        steps.prime(f"p{number}", state)
        given = 0
        while f"p{number}" not in steps.ended:
            given += steps.step().get(f"p{number}", 0)
        assert given == len(state) // 16 * 16 - (number and (len(state) - 60) // 16 * 16)
        state = [*state, *ids(10 + number, 60)]


def test_a_prime_waits_for_whoever_is_waited_for():
    steps = Steps(seats=32)
    steps.prime("prime", ids(100_000, 20_000))
    steps.step()
    number, given = 0, 0
    for _ in range(20):
        number = flood(steps, number, length=300)
        planned = steps.step()
        given += planned.get("prime", 0)
        assert sum(planned.values()) > 1800
    assert 0 < given <= 20 * 2048 // 8
    steps.give_up("prime")


def test_whoever_asks_about_a_state_under_way_gives_it_his_place():
    steps = Steps()
    state = ids(100_000, 10_000)
    steps.prime("prime", state)
    steps.step()
    steps.decision("d", state)
    number, came = flood(steps, 0, length=300), steps.number
    while "d" not in steps.ended:
        steps.step()
        number = flood(steps, number, length=300)
        assert steps.number - came < 30
    assert "prime" in steps.ended


def test_a_prime_and_a_question_on_it_at_once():
    steps = Steps()
    state = ids(1, 1000)
    steps.prime("p1", state)
    steps.decision("d", state)
    steps.prime("p2", state)
    given = [steps.step() for _ in range(4)]
    assert set(steps.ended) == {"p1", "d", "p2"}
    assert sum(sum(each.values()) for each in given) == 1040


def test_a_prime_given_up_half_way_is_gone_on_with():
    steps = Steps()
    state = ids(1, 6000)
    steps.prime("short", state)
    steps.step()
    steps.give_up("short")
    steps.prime("long", [*state, *ids(2, 500)])
    assert steps.step()["long"] <= 2048
    steps.give_up("long")
    steps.decision("d", state)
    given = 0
    while "d" not in steps.ended:
        given += steps.step().get("d", 0)
    assert given < 6040 - 3500


def test_everything_is_forgotten_at_the_end():
    steps = Steps()
    scheduler = steps.scheduler
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    number = 0
    for turn in range(12):
        number = flood(steps, number, length=500)
        steps.chat(f"chat {turn}", ids(100_000 + turn, 3000), tokens=20)
        steps.prime(f"prime {turn}", ids(200_000 + turn // 2, 700))
        steps.step()
        steps.give_up(f"chat {turn - 1}")
    for name in list(scheduler.requests):
        steps.give_up(name)
    steps.step()
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
    for kept in (scheduler._courses, scheduler._stops, scheduler._on_state):
        assert not kept
    assert not scheduler._aside
    assert not scheduler._primed
