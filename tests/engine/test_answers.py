from __future__ import annotations

import json
from typing import Any

import pytest

from engine.answers import system_one_response
from engine.errors import BadRequest
from engine.records import ask_from_system_one
from tests.support.bundles import oracle_answers, oracle_cases

ANSWERS = oracle_answers()


@pytest.mark.parametrize("case", oracle_cases(), ids=lambda case: case["name"])
def test_responses_are_the_release_s_to_the_byte(case: dict[str, Any]) -> None:
    answer = ANSWERS[case["name"]]
    try:
        ask_from_system_one(case["request"])
    except BadRequest:
        return  # only accepted requests are answered
    if "response" not in answer:
        return
    probabilities = {
        question["id"]: dict(zip(question["option_ids"], question["probabilities"], strict=True))
        for question in answer["questions"]
    }
    response = system_one_response(
        case["request"], probabilities, input_tokens=len(answer["input_ids"])
    )
    assert json.dumps(response) == json.dumps(answer["response"])


def test_of_equal_options_the_first_of_the_request_is_chosen() -> None:
    criteria = {"b": None, "c": None, "a": None}
    request = {"model": "m", "questions": {"q": {"type": "choice", "criteria": criteria}}}
    response = system_one_response(request, {"q": {"a": 0.4, "b": 0.2, "c": 0.4}}, input_tokens=7)
    assert response["answers"]["q"] == {
        "type": "choice",
        "choice": "c",
        "confidence": 0.4,
        "probabilities": {"b": 0.2, "c": 0.4, "a": 0.4},
    }
    assert response["usage"] == {"input_tokens": 7, "output_tokens": 0}


def test_numbers_are_rounded_after_the_arithmetic() -> None:
    request = {"model": "m", "questions": {"q": {"type": "score", "criteria": [None, "x", {}]}}}
    probabilities = {"0": 0.33334, "1": 0.33333, "2": 0.33333}
    response = system_one_response(request, {"q": probabilities}, input_tokens=1)
    assert response["answers"]["q"] == {
        "type": "score",
        "score": 1.0,  # 0.99999; of rounded probabilities it would be 0.9999
        "confidence": 0.3333,
        "legend": {"0": None, "1": "x", "2": {}},
        "probabilities": {"0": 0.3333, "1": 0.3333, "2": 0.3333},
    }
