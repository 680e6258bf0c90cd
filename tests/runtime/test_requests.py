from __future__ import annotations

import hashlib

import pytest

from engine.contract import decode_ask, encode_ask
from engine.errors import BadRequest
from games import Option, View, choice, noul
from runtime.errors import CannotPlay
from runtime.requests import action_of, complete, decision_id, derive, match_of, questions_of

CELLS = tuple(
    Option(f"{row}{column}", parts=(row, column)) for row, column in ("a1", "a2", "b1", "c1")
)
PLAIN = (Option("left"), Option("right"))
QUESTIONS = (choice("cell", "Which?", CELLS), noul("won", "Is it won?"))
FACTORS = ("row", "column")


def test_request_is_named_by_its_bytes() -> None:
    request = derive(View("public", " private"), QUESTIONS)
    data = encode_ask(request.ask)
    assert request.ask.state == "public private"
    assert request.ask.public_end == len("public")
    assert (request.ask.form, request.ask.record) == ("independent", "neutral")
    assert request.length == len(data)
    assert request.sha256 == hashlib.sha256(data).hexdigest()
    assert decode_ask(data) == request.ask


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        derive(View("\ud800"), QUESTIONS)


def test_decisions_name_their_match() -> None:
    decision = decision_id("kuhn_poker-ab12-0001", 17)
    assert match_of(decision) == "kuhn_poker-ab12-0001"
    assert not set(decision) & set(". *>")


def test_parts_without_a_choice_are_filled_in() -> None:
    assert complete(CELLS, ()) == ()
    assert complete(CELLS, ("a",)) == ("a",)
    assert complete(CELLS, ("b",)) == ("b", "1")
    assert complete(CELLS[2:3], ()) == ("b", "1")
    assert complete(CELLS[:2], ()) == ("a",)
    assert complete(PLAIN, ()) == ()
    assert complete(CELLS, ("z",)) == ("z",)


def test_action_is_the_option_with_all_its_parts() -> None:
    assert action_of(CELLS, ("a",)) is None
    assert action_of(CELLS, ("a", "2")) == "a2"
    assert action_of(PLAIN, ("right",)) == "right"


def test_questions_without_factors_are_the_games_own() -> None:
    questions = (choice("way", "Which?", PLAIN), noul("won", "Is it won?"))
    assert questions_of(questions, PLAIN, factors=()) == questions


def test_each_part_offers_what_it_can_still_have() -> None:
    row, readout = questions_of(QUESTIONS, CELLS, factors=FACTORS)
    assert [option.id for option in row.options] == ["a", "b", "c"]
    assert row.instructions == "Which?\nNow choose only the row."
    assert readout == QUESTIONS[1]
    [column] = questions_of(QUESTIONS, CELLS, factors=FACTORS, chosen=("a",))
    assert [option.id for option in column.options] == ["1", "2"]
    assert column.instructions == "Which?\nAlready chosen: a. Now choose only the column."


def test_read_outs_come_with_the_first_question_whichever_part_that_is() -> None:
    questions = questions_of(QUESTIONS, CELLS[:2], factors=FACTORS, chosen=("a",))
    assert [question.id for question in questions] == ["cell_column", "won"]


def test_question_with_too_many_options_is_refused() -> None:
    options = tuple(Option(str(number)) for number in range(256))
    with pytest.raises(CannotPlay, match="256 options, a decision takes 255"):
        questions_of((choice("one", "Which?", options),), options, factors=())
