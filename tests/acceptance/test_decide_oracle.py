"""`ostinato decide` with a real vLLM, on a checkpoint with the release's own answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.bundle import Bundle
from tests.support.bundles import ORACLE, adapter_bundle, oracle_answers, oracle_cases, tuned_bundle
from tests.support.command import Command

pytest.importorskip("vllm")

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

EXACT = ("id", "type", "question_span", "option_spans", "option_ids")
PUBLISHED = 1e-4  # probabilities are published with four digits


def answered(ostinato: Command, bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Answer the whole file, and check what holds for every line."""
    done = ostinato(
        *("decide", "--model", bundle.path, "--requests", ORACLE / "requests.jsonl"),
        *("--logits", "--json"),
        within_s=380,
    )
    assert done.code == 3, done
    assert done.stderr == ""
    lines = done.documents
    assert [line["name"] for line in lines] == [case["name"] for case in oracle_cases()]
    return {line["name"]: line for line in lines}


def close(found: Any, expected: Any, band: float) -> bool:
    """Whether two JSON values are equal but for numbers that lie within a band."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            close(found[key], expected[key], band) for key in expected
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(
            close(*pair, band) for pair in zip(found, expected, strict=True)
        )
    if isinstance(expected, float):
        return abs(found - expected) <= band
    return found == expected


@pytest.mark.parametrize(
    ("make", "logits", "probabilities"),
    [
        # the engine's own tests answer both
        pytest.param(tuned_bundle, 1e-3, PUBLISHED, id="tuned weights", marks=pytest.mark.long),
        pytest.param(adapter_bundle, 0.02, 0.003, id="base and adapter"),
    ],
)
def test_it_answers_as_the_release_does(
    ostinato: Command,
    tmp_path: Path,
    make: Callable[[Path], Bundle],
    logits: float,
    probabilities: float,
):
    found = answered(ostinato, make(tmp_path / "bundle"))
    expected = oracle_answers()
    for case in oracle_cases():
        name = case["name"]
        line, known = found[name], expected[name]
        if "response" not in known or ("quirk" in case["tags"] and "error" in line):
            assert set(line) == {"name", "error"}, name
            assert line["error"]["code"].startswith("engine/"), line
            assert line["error"]["message"]
            continue
        assert set(line) == {"name", "input_ids", "questions", "response"}, line
        assert line["input_ids"] == known["input_ids"], name
        for question, wanted in zip(line["questions"], known["questions"], strict=True):
            for field in EXACT:
                assert question[field] == wanted[field], (name, field)
            assert close(question["logits"], wanted["logits"], logits), name
            assert close(question["probabilities"], wanted["probabilities"], probabilities), name
        response = line["response"]
        cut = response.pop("x_truncated", None)
        assert (cut is not None) == ("truncation" in case["tags"]), name
        assert close(response, known["response"], probabilities), (response, known["response"])
