from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.contract import Ask, Field
from engine.errors import BadBundle, BadRequest, RecordTooLong
from engine.records import ask_from_questions, ask_from_system_one
from engine.tokens import PREFIX, SUFFIX, Encoder, Record
from games.questions import Option, choice, noul
from tests.support.bundles import ORACLE, oracle_answers, oracle_cases

CASES = {case["name"]: case for case in oracle_cases()}
ANSWERS = oracle_answers()
READ = [
    name
    for name, case in CASES.items()
    if "questions" in ANSWERS[name] and not {"quirk", "nonfinite"} & {*case["tags"]}
]
WINDOW = 32768
QUESTIONS = (
    choice("move", "Where to?", (Option("west"), Option("east", "a bridge"))),
    noul("safe", "Is it safe?"),
)

# what may go wrong where a text is cut: lines, blanks, marks, composed letters, added tokens
PIECES = [
    *"ab1. ,'\n\r\t",
    "\n",
    "\n\n",
    " \n",
    "\r\n",
    "  ",
    "\u00a0",
    "\u2028",
    "\u0085",
    "é",
    "e\u0301",
    "\u0301",
    "\u1100",
    "\u1161",
    "한",
    "系",
    "😀",
    "'s",
    "...",
    "!\n",
    "<|im_end|>",
    "<|im_start|>",
    "<think>",
    "Turn 12: north",
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(ORACLE / "base")


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    """The same tokenizer, used without any cutting or caching."""
    return Tokenizer.from_file(str(ORACLE / "base" / "tokenizer.json"))


def ask_of(name: str, **changes: Any) -> Ask:
    case = CASES[name]
    ask = ask_from_system_one(
        case["request"], form="joint", record="release", max_length=case.get("max_length", 16384)
    )
    return msgspec.structs.replace(ask, **changes)


def spans_of(record: Record) -> list[tuple[list[int], list[list[int]]]]:
    return [
        (list(field.question_span), [list(span) for span in field.option_spans])
        for field in record.fields
    ]


@pytest.mark.parametrize("name", READ)
def test_ids_and_spans_are_the_release_s(name: str, encoder: Encoder) -> None:
    [record] = encoder.encode(ask_of(name), window=WINDOW)
    expected = ANSWERS[name]
    assert record.input_ids == expected["input_ids"]
    assert [field.type for field in record.fields] == [q["type"] for q in expected["questions"]]
    assert spans_of(record) == [
        (q["question_span"], q["option_spans"]) for q in expected["questions"]
    ]


@pytest.mark.parametrize("name", [name for name in CASES if "does-not-fit" in CASES[name]["tags"]])
def test_questions_that_do_not_fit_are_refused_with_both_numbers(
    name: str, encoder: Encoder
) -> None:
    with pytest.raises(RecordTooLong) as caught:
        encoder.encode(ask_of(name), window=WINDOW)
    assert str(caught.value) == ANSWERS[name]["error"]["message"]


def test_marks_do_not_join_letters_whatever_the_file_says(tmp_path: Path, encoder: Encoder) -> None:
    name = "state_combining_marks"
    content = json.loads((ORACLE / "base" / "tokenizer.json").read_text(encoding="utf-8"))
    [split, _] = content["pre_tokenizer"]["pretokenizers"]
    split["pattern"]["Regex"] = (
        split["pattern"]["Regex"]
        .replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+")
        .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    joined = json.loads((ORACLE / "expected_marks_as_letters.json").read_text(encoding="utf-8"))
    state = CASES[name]["request"]["state"]
    as_written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    # the other form is really in the file: taken at its word, it gives the other answer
    assert contains(joined[name]["input_ids"], as_written.encode(state).ids)
    assert not contains(ANSWERS[name]["input_ids"], as_written.encode(state).ids)

    [record] = Encoder(tmp_path).encode(ask_of(name), window=WINDOW)
    assert record.input_ids == ANSWERS[name]["input_ids"]


def contains(ids: list[int], part: list[int]) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


def test_independent_questions_are_read_alone(encoder: Encoder) -> None:
    ask = ask_from_questions(state="Turn 1: north\n", questions=QUESTIONS, record="release")
    both = encoder.encode(ask, window=WINDOW)
    for field, record in zip(ask.fields, both, strict=True):
        [alone] = encoder.encode(
            msgspec.structs.replace(ask, fields=(field,), form="joint"), window=WINDOW
        )
        assert record == alone


def test_records_on_one_state_share_its_numbers(encoder: Encoder) -> None:
    [field] = ask_of("choice_null_descriptions").fields[:1]
    ask = Ask(state="Deep in the mountain a lift hangs still. " * 99, fields=(field, field))
    one, other = encoder.encode(ask, window=10**6)
    assert one.state_end > 900
    assert all(
        a is b for a, b in zip(one.input_ids, other.input_ids[: one.state_end], strict=False)
    )


def test_a_neutral_record_does_not_depend_on_the_question_s_id(encoder: Encoder) -> None:
    def records(id: str) -> list[Record]:
        question = choice(id, "Where to?", (Option("west"), Option("east")))
        return encoder.encode(ask_from_questions(state="s", questions=(question,)), window=WINDOW)

    assert records("move") == records("anything else") == records("q")
    assert_shows(encoder, records("move")[0], "FIELD 1\nID: q\nTYPE: choice")


def assert_shows(encoder: Encoder, record: Record, text: str) -> None:
    assert contains(record.input_ids, list(encoder.ids(text))[1:-1])


@pytest.mark.parametrize("form", ["joint", "independent"])
def test_state_end_and_truncation(form: Any, encoder: Encoder) -> None:
    state = "Turn 1: the scout moved north; energy is 99.\n" * 20
    ask = ask_from_questions(state=state, questions=QUESTIONS, form=form, public_end=len(state))
    for whole in encoder.encode(ask, window=WINDOW):
        assert whole.truncated == 0
        assert whole.public_end == whole.state_end
        start = len(encoder.ids(PREFIX))
        assert whole.input_ids[start : whole.state_end] == list(encoder.ids(state))
        assert whole.input_ids[-len(encoder.ids(SUFFIX)) :] == list(encoder.ids(SUFFIX))

    limit = len(encoder.encode(ask, window=WINDOW)[0].input_ids) - 7
    cut = encoder.encode(msgspec.structs.replace(ask, max_length=limit), window=WINDOW)[0]
    whole = encoder.encode(ask, window=WINDOW)[0]
    assert cut.truncated == 7
    assert len(cut.input_ids) == limit
    assert cut.input_ids[: cut.state_end] == whole.input_ids[: cut.state_end]
    assert cut.input_ids[cut.state_end :] == whole.input_ids[whole.state_end :]
    assert cut.public_end == cut.state_end == whole.state_end - 7


def test_a_record_longer_than_the_window_is_refused_with_both_numbers(encoder: Encoder) -> None:
    ask = ask_from_questions(state="Turn 1: north\n" * 9, questions=QUESTIONS, form="joint")
    [record] = encoder.encode(ask, window=WINDOW)
    length = len(record.input_ids)
    assert encoder.encode(ask, window=length) == [record]
    with pytest.raises(RecordTooLong, match=rf"has {length} tokens, the window is {length - 1}"):
        encoder.encode(ask, window=length - 1)
    # a cut that is wished for is made to the wish alone, never further
    with pytest.raises(RecordTooLong, match="the window is 200"):
        encoder.encode(msgspec.structs.replace(ask, max_length=length - 1), window=200)


@pytest.mark.parametrize(
    "field",
    [
        Field(id="", type="noul", instruction="", option_ids=("a",), option_texts=("a",)),
        Field(id="q", type="choice", instruction="x", option_ids=(), option_texts=()),
    ],
)
def test_an_empty_span_is_refused(field: Field, encoder: Encoder) -> None:
    with pytest.raises(BadRequest, match="nothing to read"):
        encoder.encode(Ask(state="s", fields=(field,)), window=WINDOW)


def test_a_lone_surrogate_is_refused(encoder: Encoder) -> None:
    with pytest.raises(BadRequest, match="lone surrogate"):
        encoder.ids("a\ud800")


@given(st.lists(texts, min_size=1, max_size=3), st.integers(1, 40))
def test_long_texts_are_tokenized_as_a_whole(
    encoder: Encoder, plain: Tokenizer, parts: list[str], times: int
) -> None:
    text = "".join(part * times * 8 for part in parts)
    assert list(encoder.ids(text)) == plain.encode(text, add_special_tokens=False).ids


@given(texts, texts, st.booleans())
def test_tokens_of_the_shared_part(
    encoder: Encoder, plain: Tokenizer, public: str, private: str, long: bool
) -> None:
    public *= 300 if long else 1
    ask = ask_from_questions(
        state=public + private, public_end=len(public), questions=QUESTIONS[:1]
    )
    [record] = encoder.encode(ask, window=1 << 20)
    start = len(encoder.ids(PREFIX))
    assert start <= record.public_end <= record.state_end
    shared = plain.decode(record.input_ids[start : record.public_end], skip_special_tokens=False)
    # a token can end inside a character: what it shows of it is no text yet
    assert unicodedata.normalize("NFC", public).startswith(shared.rstrip("\ufffd"))


def test_the_shared_part_ends_at_a_token_border(encoder: Encoder) -> None:
    public, private = "Rules.\nTurn 1: north\nTurn 2: east", "ern wind\nYour hand: 7"
    ask = ask_from_questions(
        state=public + private, public_end=len(public), questions=QUESTIONS[:1]
    )
    [record] = encoder.encode(ask, window=WINDOW)
    start = len(encoder.ids(PREFIX))
    ids = list(encoder.ids(public + private))
    kept = ids[: record.public_end - start]
    assert len(kept) < len(ids)
    assert kept == list(encoder.ids(public))[: len(kept)]


def test_a_new_line_is_a_border(encoder: Encoder) -> None:
    public, private = "Rules.\nTurn 1: north\n", "Your hand: 7\n"
    ask = ask_from_questions(
        state=public + private, public_end=len(public), questions=QUESTIONS[:1]
    )
    [record] = encoder.encode(ask, window=WINDOW)
    assert record.public_end == len(encoder.ids(PREFIX)) + len(encoder.ids(public))


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 1}'])
def test_a_missing_or_broken_tokenizer_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(BadBundle, match="make the bundle again"):
        Encoder(tmp_path)
