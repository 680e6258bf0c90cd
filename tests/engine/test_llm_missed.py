from __future__ import annotations

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
