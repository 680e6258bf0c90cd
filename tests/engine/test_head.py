from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import BadBundle
from engine.head import JointHead
from engine.tokens import RecordField
from tests.support.bundles import ORACLE, oracle_answers

CASES = ("three_types", "choice_null_descriptions", "state_json")
HEAD = ORACLE / "clef" / "joint_head.safetensors"
CONFIG: dict[str, int] = json.loads(HEAD.with_name("joint_head_config.json").read_text())


@pytest.fixture(scope="module")
def activations() -> dict[str, Tensor]:
    return load_file(ORACLE / "activations.safetensors")


@pytest.fixture(scope="module")
def lm_head() -> Tensor:
    return load_file(ORACLE / "clef" / "model-00002-of-00002.safetensors")["lm_head.weight"]


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return oracle_answers()


def fields_of(answer: dict[str, Any]) -> list[RecordField]:
    return [
        RecordField(
            question["type"],
            tuple(question["question_span"]),
            tuple(tuple(span) for span in question["option_spans"]),
        )
        for question in answer["questions"]
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_logits_and_features_from_true_states(
    case: str,
    dtype: torch.dtype,
    activations: dict[str, Tensor],
    lm_head: Tensor,
    answers: dict[str, Any],
) -> None:
    head = JointHead.from_file(HEAD, CONFIG, dtype=dtype)
    hidden, answer = activations[f"{case}.clef.hidden"], answers[case]
    logits = head.score(hidden, answer["input_ids"], lm_head, fields_of(answer))
    for found, question in zip(logits, answer["questions"], strict=True):
        expected = torch.tensor(question["logits"], dtype=dtype)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            found.softmax(0),
            torch.tensor(question["probabilities"], dtype=dtype),
            atol=2e-6,
            rtol=0,
        )
    torch.testing.assert_close(
        head.memory(hidden),
        activations[f"{case}.clef.memory"].to(dtype),
        atol=1e-5,
        rtol=0,
    )


def test_the_features_of_the_tokens_before_the_questions_are_enough(
    activations: dict[str, Tensor], lm_head: Tensor, answers: dict[str, Any]
) -> None:
    head = JointHead.from_file(HEAD, CONFIG)
    hidden, answer = activations["three_types.clef.hidden"], answers["three_types"]
    fields, ids = fields_of(answer), answer["input_ids"]
    whole = head.score(hidden, ids, lm_head, fields)

    memory = head.memory(hidden)
    spoiled = head.normalize(hidden)
    spoiled[: fields[0].question_span[0]] = torch.nan
    parts = head.logits(memory, head.pool(spoiled, ids, lm_head, fields))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_other_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="not this head's tensors"):
        JointHead.from_file(HEAD, CONFIG | {"layers": 3})
    with pytest.raises(BadBundle, match="not this head's tensors"):
        JointHead.from_file(tmp_path / "missing.safetensors", CONFIG)
    tensors = load_file(HEAD)
    del tensors["hidden_norm.bias"]
    save_file(tensors, tmp_path / "short.safetensors")
    with pytest.raises(BadBundle, match=r"hidden_norm\.bias"):
        JointHead.from_file(tmp_path / "short.safetensors", CONFIG)
    (tmp_path / "cut.safetensors").write_bytes(HEAD.read_bytes()[:5000])
    with pytest.raises(BadBundle, match="not this head's tensors"):
        JointHead.from_file(tmp_path / "cut.safetensors", CONFIG)
