from __future__ import annotations

import copy
import json
from pathlib import Path
from types import MethodType
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine import head_layers
from engine.errors import BadBundle
from engine.head import JointHead, find_places
from engine.head_layers import Rows, StateFeatures
from engine.manifest import HeadConfig
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


def plainly(head: JointHead) -> JointHead:
    """Let every layer project all tokens to keys and values, as the release does."""

    def read(self: Any, queries: Tensor, memory: Any, rows: Any, norm: Any = None) -> Tensor:
        [rest] = memory.rests
        features = torch.cat((memory.state, rest))
        return self(queries, features if norm is None else norm(features))

    head = copy.deepcopy(head)
    for module in head.modules():
        if hasattr(module, "read"):
            module.read = MethodType(read, module)
    return head


def peaked(head: JointHead, factor: float) -> JointHead:
    """Make the attention's queries `factor` times longer."""
    head = copy.deepcopy(head)
    for name, tensor in head.named_parameters():
        if "in_proj" in name and "self_attn" not in name:
            tensor.chunk(3)[0].mul_(factor)
    return head


@pytest.mark.parametrize("factor", [1.0, 5.0, 25.0])
@pytest.mark.parametrize("case", CASES)
def test_features_read_by_absorption_give_what_keys_and_values_give(
    case: str,
    factor: float,
    activations: dict[str, Tensor],
    lm_head: Tensor,
    answers: dict[str, Any],
) -> None:
    """Also on states like the checkpoint's, a tenth of their spread apart.

    In float64 to 1e-12. In float32 to 2e-5 up to queries five times longer (1e-5 at most, in
    either form). With 25 times longer ones no float32 reaches that: what comes in is rounded
    already, and this alone moves a logit by 3e-5; both forms stay within 32 times of it (18, and
    1e-4 to 3e-4).
    """
    answer = answers[case]
    asked = answer["input_ids"], lm_head, fields_of(answer)
    exact = peaked(JointHead.from_file(HEAD, CONFIG, dtype=torch.float64), factor)
    plain, head = plainly(exact), peaked(JointHead.from_file(HEAD, CONFIG), factor)
    source = torch.Generator().manual_seed(7)
    given = activations[f"{case}.clef.hidden"]
    for spread in (0.0, 0.1, 0.1, 0.1):
        hidden = given + spread * given.std() * torch.randn(given.shape, generator=source)
        truth = torch.cat(plain.score(hidden.double(), *asked))
        found = torch.cat(exact.score(hidden.double(), *asked))
        torch.testing.assert_close(found, truth, atol=1e-12, rtol=0)
        half = (torch.rand(hidden.shape, generator=source).double() * 2 - 1) * 2**-24
        moved = torch.cat(exact.score(hidden.double() * (1 + half), *asked)) - truth
        band = 2e-5 if factor <= 5 else max(2e-5, 32 * float(moved.abs().max()))
        found = torch.cat(head.score(hidden, *asked)).double()
        torch.testing.assert_close(found, truth, atol=band, rtol=0)


def test_absorption_at_the_size_of_the_release() -> None:
    torch.manual_seed(1)
    sizes = {"hidden_size": 640, "width": 1024, "heads": 16, "feedforward": 512}
    config = msgspec.convert(CONFIG | sizes, HeadConfig)
    head = JointHead(config).double().requires_grad_(requires_grad=False)
    for name, tensor in head.named_parameters():
        noise = torch.randn_like(tensor)
        is_norm = "norm" in name and name.endswith("weight")
        tensor.copy_(1 + 0.1 * noise if is_norm else noise * (tensor.shape[-1:] or [1])[0] ** -0.5)
    tokens = 700
    fields = [
        RecordField(1, (600, 605), tuple((605 + i, 606 + i) for i in range(many)))
        for many in (2, 30, 60)  # 92 options: their layers project, the fields' absorb
    ]
    ids = torch.randint(50, (tokens,)).tolist()
    hidden, lm_head = torch.randn(tokens, 640).double(), torch.randn(50, 640)
    for asked in (fields, fields[:2]):
        for factor, band in ((1, 1e-12), (8, 1e-11)):
            sharp = peaked(head, factor)
            found = torch.cat(sharp.score(hidden, ids, lm_head, asked))
            truth = torch.cat(plainly(sharp).score(hidden, ids, lm_head, asked))
            torch.testing.assert_close(found, truth, atol=band, rtol=0)


def features_of(memory: Tensor, *ends: int) -> StateFeatures:
    """Cut the features of records on one state behind it."""
    return StateFeatures(memory[: ends[0]], [memory[end:] for end in ends])


def test_records_scored_together_are_scored_alone(
    activations: dict[str, Tensor], lm_head: Tensor, answers: dict[str, Any]
) -> None:
    head = JointHead.from_file(HEAD, CONFIG)
    features, tails, places, alone = [], [], [], []
    for case in CASES:
        hidden, answer = activations[f"{case}.clef.hidden"], answers[case]
        fields, ids = fields_of(answer), answer["input_ids"]
        places.append(find_places(ids, fields, lm_head, torch.float32))
        features.append(features_of(head.memory(hidden), places[-1].start))
        tails.append(hidden[places[-1].start :])
        alone.append(torch.cat(head.score(hidden, ids, lm_head, fields)))
    for one, other in zip(head.logits(features, tails, places), alone, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=0)
    features[1] = StateFeatures(features[1].state * torch.nan, features[1].rests)
    first, lost, last = head.logits(features, tails, places)
    assert lost.isnan().all()
    torch.testing.assert_close(first, alone[0], atol=2e-6, rtol=0)
    torch.testing.assert_close(last, alone[2], atol=2e-6, rtol=0)


@pytest.mark.parametrize(
    ("peak", "scores"), [(1.0, 1 << 25), (5.0, 1 << 25), (5.0, 4000), (1.0, 1)]
)
def test_questions_on_one_state_share_its_features(
    peak: float,
    scores: int,
    monkeypatch: pytest.MonkeyPatch,
    lm_head: Tensor,
) -> None:
    """Records that fork anywhere, with few options and with many, beside others; also in parts."""
    head = peaked(JointHead.from_file(HEAD, CONFIG, dtype=torch.float64), peak)
    torch.manual_seed(3)
    state, other = torch.randn(90, 128).double(), torch.randn(7, 128).double()
    groups: list[StateFeatures] = []
    tails, places, alone = [], [], []
    for begins, shapes in ((state, [(40, (2,)), (9, (1,)), (31, (3, 2))]), (other, [(80, (30,))])):
        rests = []
        for length, counts in shapes:
            hidden = torch.cat((begins, torch.randn(length, 128).double()))
            start, end = len(begins) + 2, len(hidden)
            fields = [
                RecordField(1, (start, start + 2), tuple((end - 1 - i % 5, end) for i in range(n)))
                for n in counts
            ]
            ids = torch.randint(200, (end,)).tolist()
            places.append(find_places(ids, fields, lm_head, torch.float64))
            tails.append(hidden[start:])
            rests.append(head.memory(hidden)[len(begins) :])
            alone.append(torch.cat(head.score(hidden, ids, lm_head, fields)))
        groups.append(StateFeatures(head.memory(begins), rests))
    monkeypatch.setattr(head_layers, "_SCORES", scores)
    for found, truth in zip(head.logits(groups, tails, places), alone, strict=True):
        torch.testing.assert_close(found, truth, atol=1e-12, rtol=0)
    groups[0].rests[1][3] = torch.nan
    first, lost, third, last = head.logits(groups, tails, places)
    assert lost.isnan().all()
    for found, truth in zip((first, third, last), (alone[0], *alone[2:]), strict=True):
        torch.testing.assert_close(found, truth, atol=1e-12, rtol=0)


class Largest(TorchDispatchMode):
    """Notes the numbers of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.numbers = max(self.numbers, made.numel())
        return made


@pytest.mark.parametrize("records", [1, 4])
def test_many_options_over_a_long_state_take_no_more_memory(
    records: int, monkeypatch: pytest.MonkeyPatch, lm_head: Tensor
) -> None:
    monkeypatch.setattr(head_layers, "_SCORES", 400_000)
    head = JointHead.from_file(HEAD, CONFIG)
    start, options = 3000, 300  # times 4 records and 4 heads: 14 million scores
    spans = tuple((start + 1 + place, start + 2 + place) for place in range(options))
    hidden = torch.randn(start + options + 2, 128)
    ids = [1] * len(hidden)
    place = find_places(ids, [RecordField(1, (start, start + 1), spans)], lm_head, torch.float32)
    features = features_of(head.memory(hidden), *[start] * records)
    with Largest() as largest:
        head.logits([features], [hidden[start:]] * records, [place] * records)
    assert 200_000 < largest.numbers < 800_000


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 100))
def test_rows_come_apart_and_are_all_there(counts: list[int], most: int) -> None:
    owner = [record for record, count in enumerate(counts) for _ in range(count)]
    found: list[int] = []
    for own, records, part in Rows.of(counts, torch.device("cpu")).split(most):
        assert part.of_record.numel() <= most
        numbers = range(len(counts))[records]
        assert len(numbers) == len(part.counts)
        mine = [number for number, n in zip(numbers, part.counts, strict=True) for _ in range(n)]
        assert owner[own] == mine
        found += mine
    assert found == owner


def test_what_keeping_features_in_fewer_bits_costs(
    activations: dict[str, Tensor], lm_head: Tensor, answers: dict[str, Any]
) -> None:
    """Print the largest error of a logit by format and sharpness of the attention.

    On this checkpoint, whose logits reach 3.6: float32 3e-8, float16 3e-4, bfloat16 3e-3;
    with queries five times longer 8e-7, 3e-3 and 1e-1.
    """
    exact = JointHead.from_file(HEAD, CONFIG, dtype=torch.float64)
    worst: dict[tuple[str, float], float] = {}
    for factor in (1.0, 5.0):
        head = peaked(exact, factor)
        for case in CASES:
            hidden, answer = activations[f"{case}.clef.hidden"].double(), answers[case]
            places = find_places(answer["input_ids"], fields_of(answer), lm_head, torch.float64)
            memory, tail = head.memory(hidden), hidden[places.start :]
            [truth] = head.logits([features_of(memory, places.start)], [tail], [places])
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                kept = features_of(memory.to(dtype), places.start)
                [found] = head.logits([kept], [tail], [places])
                key = str(dtype), factor
                error = float((found - truth).abs().max())
                worst[key] = max(worst.get(key, 0.0), error)
    for (dtype, factor), error in worst.items():
        print(f"features in {dtype:15} queries x {factor:2.0f}: logits within {error:.1e}")
    assert worst["torch.float32", 1.0] < 1e-6
    assert worst["torch.float16", 1.0] < 1e-3
    assert worst["torch.bfloat16", 1.0] < 1e-2


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
