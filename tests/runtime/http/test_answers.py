from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.http.answers import answer, choice_confidence, score_confidence

weights = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=255)


def spread(values: list[float]) -> list[float]:
    total = math.fsum(values)
    return [value / total for value in values]


@pytest.mark.parametrize(
    ("probabilities", "choice", "score"),
    [
        ([1.0], 1.0, 1.0),
        ([0.5, 0.5], 0.0, 0.0),
        ([0.75, 0.25], 0.5, 0.5),
        ([0.0, 1.0, 0.0], 1.0, 1.0),
        # distance to level 0: 0.3 + 2 * 0.1; of three even levels from their middle: 2/3
        ([0.6, 0.3, 0.1], 0.4, 1 - 0.5 / (2 / 3)),
        ([0.5, 0.0, 0.5], 0.25, 0.0),
    ],
)
def test_formulas(probabilities: list[float], choice: float, score: float):
    assert choice_confidence(probabilities) == pytest.approx(choice)
    assert score_confidence(probabilities) == pytest.approx(score)


@given(weights)
def test_what_is_shown_agrees(values: list[float]):
    probabilities = {f"o{i}": p for i, p in enumerate(spread(values))}
    question = {"type": "choice", "criteria": dict.fromkeys(reversed(probabilities))}
    shown = answer(question, probabilities, confidence="typesafe")
    assert list(shown["probabilities"]) == list(question["criteria"])
    assert shown["probabilities"][shown["choice"]] == max(shown["probabilities"].values())
    assert sum(shown["probabilities"].values()) == pytest.approx(1, abs=2e-4)
    assert shown["confidence"] == pytest.approx(
        choice_confidence(list(shown["probabilities"].values())), abs=1e-6
    )
    sure = answer(question, probabilities, confidence="release")["confidence"]
    assert sure == max(shown["probabilities"].values())


@given(weights.map(lambda values: values[:10]))
def test_a_score_is_the_mean_of_what_is_shown(values: list[float]):
    probabilities = {str(i): p for i, p in enumerate(spread(values))}
    question = {"type": "score", "criteria": [None] * len(values)}
    shown = answer(question, probabilities, confidence="typesafe")
    mean = sum(int(level) * p for level, p in shown["probabilities"].items())
    assert shown["score"] == pytest.approx(mean, abs=1e-6)
    assert shown["legend"] == {str(level): "" for level in range(len(values))}
    assert 0 <= shown["confidence"] <= 1


def test_equal_options_go_to_the_first_of_the_request():
    question = {"type": "choice", "criteria": {"b": None, "a": None}}
    assert answer(question, {"a": 0.5, "b": 0.5}, confidence="typesafe")["choice"] == "b"


def test_yes_or_no_has_no_confidence():
    shown = answer({"type": "noul"}, {"true": 0.123456789, "false": 0.8}, confidence="typesafe")
    assert shown == {"type": "noul", "noul": 0.123457}
