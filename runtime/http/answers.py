"""System One replies whose numbers agree with one another as they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

DECIMALS: Final = 6

Confidence = Literal["typesafe", "release"]
"""`typesafe`: how far from uniform, by the formulas of the official adapter. `release`: the largest
probability."""


def answer(
    question: Mapping[str, Any], probabilities: Mapping[str, float], *, confidence: Confidence
) -> dict[str, Any]:
    """Give one answer; choice, score and confidence follow from the digits shown.

    Args:
        question: As the caller sent it and `engine.records` accepted it.
        probabilities: Of each option id.
        confidence: Which formula.
    """
    shown = {id: round(value, DECIMALS) for id, value in probabilities.items()}
    kind = question["type"]
    if kind == "noul":
        return {"type": "noul", "noul": shown["true"]}
    criteria = question["criteria"]
    if kind == "choice":
        shown = {id: shown[id] for id in criteria}  # as the caller ordered them
        chosen = max(shown, key=lambda id: shown[id])
        formula = choice_confidence
        said: dict[str, Any] = {"choice": chosen}
    else:
        formula = score_confidence
        score = sum(int(level) * value for level, value in shown.items())
        # a client's parser takes no null for a level
        legend = {str(level): "" if text is None else text for level, text in enumerate(criteria)}
        said = {"score": round(score, DECIMALS), "legend": legend}
    values = list(shown.values())
    sure = max(values) if confidence == "release" else formula(values)
    return {"type": kind, **said, "probabilities": shown, "confidence": round(sure, DECIMALS)}


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Give how far the best option is above an even spread: 0 if even, 1 if certain."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    return min(1.0, max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n)))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Give how close the levels lie around the best one, against an even spread around the middle.

    `1 - sum(p_i |i - k|) / D` with k the best level and D the mean distance of all levels from
    their middle; 0 if that is negative.
    """
    n = len(probabilities)
    if n == 1:
        return 1.0
    best = max(range(n), key=lambda level: probabilities[level])
    spread = sum(p * abs(level - best) for level, p in enumerate(probabilities))
    even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return min(1.0, max(0.0, 1 - spread / even))
