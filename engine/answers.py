"""System One responses, with the numbers and the order that the release publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DECIMALS = 4


def system_one_response(
    request: dict[str, Any],
    probabilities: Mapping[str, Mapping[str, float]],
    *,
    input_tokens: int,
) -> dict[str, Any]:
    """Give the response to a request.

    Args:
        request: As `engine.records.ask_from_system_one` accepted it.
        probabilities: For each question id, of each option id.
        input_tokens: The length of what was read.
    """
    return {
        "model": request["model"],
        "answers": {
            id: _answer(question, probabilities[id])
            for id, question in request["questions"].items()
        },
        "usage": {"input_tokens": input_tokens, "output_tokens": 0},
    }


def _answer(question: dict[str, Any], probabilities: Mapping[str, float]) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"type": "noul", "noul": round(probabilities["true"], _DECIMALS)}
    criteria = question["criteria"]
    confidence = round(max(probabilities.values()), _DECIMALS)
    if question["type"] == "choice":
        return {
            "type": "choice",
            # of equal options the first in the request's order
            "choice": max(criteria, key=lambda option: probabilities[option]),
            "confidence": confidence,
            "probabilities": {id: round(probabilities[id], _DECIMALS) for id in criteria},
        }
    legend = {str(level): description for level, description in enumerate(criteria)}
    return {
        "type": "score",
        "score": round(sum(int(level) * probabilities[level] for level in legend), _DECIMALS),
        "confidence": confidence,
        "legend": legend,
        "probabilities": {level: round(probabilities[level], _DECIMALS) for level in legend},
    }
