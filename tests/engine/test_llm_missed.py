from __future__ import annotations

import pytest

from engine.llm.missed import History, Seen

UNIT = 16


def seen(tokens: list[int], *, kept: int, adapter: str = "clef", salt: str = "") -> Seen:
    key = repr((adapter, salt)).encode()
    hashes = [key + repr(tokens[:end]).encode() for end in range(UNIT, len(tokens) + 1, UNIT)]
    return Seen((adapter, salt), hashes, 0, kept // UNIT * UNIT, tokens)


def test_reasons():
    history = History(UNIT)
    text = list(range(200))
    assert history.why(seen(text, kept=170), 0) == "first time"
    assert history.why(seen(text, kept=170), 160) == ""
    assert history.why(seen([*text, 7, 8, 9] * 2, kept=300), 160) == ""  # grown
    assert history.why(seen(text, kept=170), 0) == "evicted"
    assert history.why(seen([*text[:90], 5, *text[90:]], kept=170), 0) == "text changed at token 90"
    assert history.why(seen(text, kept=170, adapter="other"), 0) == "other adapter"
    assert history.why(seen(text, kept=170, adapter="other", salt="x"), 0) == "other adapter"
    assert history.why(seen(text, kept=10), 0) == "shorter than 16 tokens"
    assert history.why(seen([300, *text], kept=170), 0) == "first time"


def test_another_salt_is_named():
    history = History(UNIT)
    text = list(range(100))
    history.why(seen(text, kept=64), 0)
    assert history.why(seen(text, kept=64, salt="x"), 0) == "other salt"


def test_only_the_last_records_are_remembered():
    history = History(UNIT)
    text = list(range(100))
    history.why(seen(text, kept=64), 0)
    for number in range(64):
        history.why(seen([1000 + number, *text], kept=64), 0)
    assert history.why(seen(text, kept=64), 0) == "first time"


def test_what_a_record_left_out_is_not_missed():
    history = History(UNIT)
    text = list(range(200))
    history.why(seen(text[:100], kept=64), 0)
    assert history.why(seen(text, kept=170), 64, leaves=64) == ""
    assert history.why(seen([*text, 1], kept=170), 64) == ""
    assert history.why(seen([*text, 2], kept=170), 0) == "evicted"
    assert history.why(seen([*text[:150], 3], kept=150), 144) == ""


def test_what_the_last_of_several_kept_counts():
    history = History(UNIT)
    text = list(range(200))
    history.why(seen(text, kept=64), 0)
    history.why(seen(text, kept=170), 64)
    assert history.why(seen(text, kept=170), 64) == "evicted"


def test_nothing_is_evicted_of_what_was_never_read():
    history = History(UNIT)
    text = list(range(200))
    first = seen(text, kept=170)
    history.why(first, 0)
    first.kept = 48  # given up then
    assert history.why(seen(text, kept=170), 48) == ""
    assert history.why(seen(text, kept=170), 32) == "evicted"


@pytest.mark.vllm
def test_what_is_given_up_is_remembered_as_far_as_it_was_read():
    pytest.importorskip("vllm")
    from tests.support.steps import Steps

    steps = Steps(tokens=512)
    state = [place * 7 % 1000 for place in range(3000)]
    steps.decision("given up", state)
    for _ in range(2):
        steps.step()
    steps.give_up("given up")
    steps.decision("next", state)
    steps.step()
    course = steps.scheduler._courses["next"]
    assert (course.reused, course.missed) == (1024, "")
