from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Ask, encode_ask
from engine.errors import BadRequest
from engine.records import ask_from_questions, ask_from_system_one, parse_json, render
from games.questions import Option, Question, choice, noul, score
from tests.support.bundles import oracle_answers, oracle_cases

CASES = oracle_cases()
ANSWERS = oracle_answers()
REFUSED = [case for case in CASES if {"invalid", "quirk", "nonfinite"} & {*case["tags"]}]
TAKEN = [case for case in CASES if case not in REFUSED and "questions" in ANSWERS[case["name"]]]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def request(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "state": "s", "questions": {"q": {"type": "noul"}}} | changes


def asked(question: dict[str, Any], id: str = "q") -> Ask:
    return ask_from_system_one(request(questions={id: question}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('as it is \n"', 'as it is \n"'),
        (None, "null"),
        (2.0, "2.0"),
        (0.1, "0.1"),
        (35000000000.0, "35000000000.0"),
        (1e-07, "1e-07"),
        (1e-05, "1e-05"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (-0.0, "-0.0"),
        (5e-324, "5e-324"),
        (123456789012345678901234567890, "123456789012345678901234567890"),
        (
            {"b": 1, "Ä": [True, None], "a": {"z": "é", "y": "\u2028/\x7f"}},
            '{"a":{"y":"\u2028/\x7f","z":"é"},"b":1,"Ä":[true,null]}',
        ),
        (['\x00\x1f\b\f\n\r\t"\\'], '["\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\"]'),
        ({"😀": 1, "～": 2}, '{"～":2,"😀":1}'),
    ],
)
def test_values_are_rendered_as_the_release_does(value: object, expected: str) -> None:
    assert render(value) == expected


@given(json_values)
def test_rendered_values_read_back_the_same(value: Any) -> None:
    if not isinstance(value, str):
        assert render(parse_json(render(value))) == render(value)
        assert json.loads(render(value)) == value


@given(st.dictionaries(text, json_values, max_size=6))
def test_rendering_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert render(dict(reversed(value.items()))) == render(value)


def test_numbers_keep_how_they_were_written() -> None:
    assert render(parse_json("[2, 2.0, 1e3, -0, -0.0, 1e22]")) == "[2,2.0,1000.0,0,-0.0,1e+22]"


def test_the_last_of_a_repeated_key_counts() -> None:
    assert parse_json('{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ('{"a": 1', "not JSON"),
        ("", "not JSON"),
        ("\ufeff1", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("1" * 5000, "4300 digits"),
    ],
)
def test_unreadable_text_is_refused(data: str | bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        parse_json(data)


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case["name"])
def test_requests_are_read_as_the_release_does(case: dict[str, Any]) -> None:
    ask = ask_from_system_one(case["request"])
    for field, question in zip(ask.fields, ANSWERS[case["name"]]["questions"], strict=True):
        assert (field.id, list(field.option_ids)) == (question["id"], question["option_ids"])


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_what_the_release_refuses_or_takes_by_accident_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        ask_from_system_one(case["request"])
    error = ANSWERS[case["name"]].get("error", {})
    if error.get("class") == "ValueError" and "dictionary update" not in error["message"]:
        assert str(caught.value) == error["message"]


@pytest.mark.parametrize("criteria", [None, {}, [], "", 0, False])
def test_falsy_criteria_of_noul_leave_the_defaults(criteria: object) -> None:
    assert asked({"type": "noul", "criteria": criteria}) == asked({"type": "noul"})


@pytest.mark.parametrize("criteria", [{"true": None}, {"true": ""}, {"true": 0}])
def test_a_given_description_of_noul_replaces_the_default(criteria: dict[str, Any]) -> None:
    [field] = asked({"type": "noul", "criteria": criteria}).fields
    description = (
        "" if criteria["true"] is None else f'"description":{render([criteria["true"]])[1:-1]},'
    )
    assert field.option_texts[0] == f'{{{description}"option_id":"true"}}'


@pytest.mark.parametrize(
    ("instructions", "shown"),
    [(None, "q"), ("", "q"), (0, "0"), (False, "false"), ([], "[]"), ({}, "{}"), ("x", "x")],
)
def test_instructions_default_to_the_id(instructions: object, shown: str) -> None:
    [field] = asked({"type": "noul", "instructions": instructions}).fields
    assert field.instruction == shown


@pytest.mark.parametrize("form", ["independent", "joint"])
@pytest.mark.parametrize("record", ["neutral", "release"])
def test_an_ask_keeps_form_record_and_wish(form: Any, record: Any) -> None:
    ask = ask_from_system_one(request(), form=form, record=record, max_length=300)
    assert (ask.form, ask.record, ask.max_length) == (form, record, 300)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": {"a": [1, {"b": math.nan}]}}, "request.state.a[1].b: nan is no finite number"),
        ({"state": [math.inf]}, "request.state[0]: inf is no finite number"),
        ({"ignored": {"two words": -math.inf}}, "request.ignored['two words']: -inf"),
        ({"state": "ab\ud800"}, "request.state: a lone surrogate at character 2"),
        ({"state": {"x": {"\udfff": 1}}}, "request.state.x: a lone surrogate at character 0"),
        ({"model": "\ud800"}, "request.model: a lone surrogate"),
        ({"images": ["x.png"]}, "images and videos are not read"),
        ({"videos": [1]}, "images and videos are not read"),
        ({"questions": {"": {"type": "noul"}}}, "needs instructions"),
        ({"questions": {"a\nb": {"type": "x"}}}, r"'a\nb': type must be noul, choice, or score"),
        ({"questions": {"q": {"type": "score", "criteria": {"a": 1}}}}, "must be an array"),
        ({"questions": {"q": {"type": "score", "criteria": "abc"}}}, "must be an array"),
        ({"questions": {"q": {"type": "choice", "criteria": ["a"]}}}, "must be an object"),
        ({"questions": {"q": {"type": "noul", "criteria": [["true", 1]]}}}, "must be an object"),
        ({"questions": {"q": ["noul"]}}, "q: a question must be an object"),
    ],
)
def test_what_no_record_can_hold_is_refused_by_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ask_from_system_one(request(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(BadRequest, match="nested too deep"):
        ask_from_system_one(request(state=value))
    while isinstance(value, list):  # Python would free it recursively
        value = value.pop()


def test_empty_media_lists_are_no_media() -> None:
    assert ask_from_system_one(request(images=[], videos=None)) == ask_from_system_one(request())


def test_games_questions_and_system_one_give_the_same_fields() -> None:
    questions = (
        choice("move", "Where to?", (Option("west"), Option("east", "a bridge"), Option("～"))),
        score("energy", "How much is left?", ("none", "some")),
        noul("safe", "Is it safe?", true="no enemy is near"),
    )
    ask = ask_from_questions(state="s", questions=questions, form="joint", record="release")
    system_one = {
        "move": {
            "type": "choice",
            "instructions": "Where to?",
            "criteria": {"west": None, "east": "a bridge", "～": None},
        },
        "energy": {
            "type": "score",
            "instructions": "How much is left?",
            "criteria": ["none", "some"],
        },
        "safe": {
            "type": "noul",
            "instructions": "Is it safe?",
            "criteria": {"true": "no enemy is near"},
        },
    }
    expected = ask_from_system_one(request(questions=system_one), form="joint", record="release")
    assert encode_ask(ask) == encode_ask(expected)
    assert ask.fields[0].option_ids == ("east", "west", "～")


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ((), "at least one question"),
        ((noul("a", "?"), noul("a", "!")), "ids must differ"),
        ((choice("a", "?", ()),), "at least"),
        ((choice("a", "?", (Option("x"), Option("x"))),), "differ"),
        ((choice("a", "\ud800", (Option("x"),)),), "question 'a': a lone surrogate"),
        ((noul("", ""),), "needs instructions"),
    ],
)
def test_bad_questions_of_a_game_are_refused(questions: tuple[Question, ...], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        ask_from_questions(state="s", questions=questions)


def test_a_lone_surrogate_in_a_games_state_is_refused() -> None:
    with pytest.raises(BadRequest, match="state: a lone surrogate"):
        ask_from_questions(state="\ud800", questions=(noul("a", "?"),))
