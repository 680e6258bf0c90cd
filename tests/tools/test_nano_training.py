from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bundle import load_bundle, verify
from engine.extract.reference import hidden_states
from engine.extract.verify import verify_adapter
from engine.extract.weights import open_weights
from engine.records import ask_from_questions
from engine.tokens import RecordField
from games.questions import noul
from tools.nano import checkpoint
from tools.nano.batches import (
    BUCKETS,
    CURRICULUM,
    LONG,
    LONG_SHARE,
    Schedule,
    in_order_of_length,
    load,
)
from tools.nano.card import card
from tools.nano.dataset import TEST, TOKENIZER, TRAIN, Dataset
from tools.nano.generate import generate
from tools.nano.release import vocabulary, write_base
from tools.nano.scoring import logits_of, losses, new_head
from tools.nano.ship import MOST_BYTES, ship
from tools.nano.sizes import RECIPES, parameters
from tools.nano.stages import BaseStage, DecideStage
from tools.nano.train import measure_steps, run_stage, write

SMOKE = RECIPES["smoke"]
OPTIONS = {
    "recipe": "smoke", "steps": 6, "tokens": 1024, "longest": 400, "rate": 3e-3, "seed": 1,
    "answer_weight": 5.0, "test_every": 6, "save_every": 100,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    generate(out, scale=0.004, seed=1, workers=1, only="tictactoe,kuhn,plain")
    return out


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    for stage in ("base", "decide"):
        record = run_stage(stage, SMOKE, data, run, OPTIONS, minutes=10, device="cpu")
        assert record["step"] == OPTIONS["steps"]
    return run


def test_the_model_that_is_trained_is_the_one_that_is_released(data, tmp_path):
    torch.manual_seed(3)
    model = BaseStage(SMOKE, vocabulary(data / TOKENIZER)).module
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            torch.nn.init.normal_(weight, mean=1.0 if "linear_attn" in name else 0.0, std=0.1)
    weights = {name: each.bfloat16().float() for name, each in model.state_dict().items()}
    model.load_state_dict(weights)
    write_base(tmp_path, SMOKE, weights, data / TOKENIZER)
    ids = torch.randint(40, 300, (1, 150))
    [theirs] = hidden_states(
        open_weights(tmp_path), [ids[0].tolist()], dtype=torch.float32, device="cpu"
    )
    assert torch.allclose(model(ids)[0], theirs, atol=2e-4)


def test_the_batched_head_scores_as_the_engine_does(data):
    torch.manual_seed(4)
    dataset, head = Dataset(data / TRAIN), new_head(SMOKE.head).eval()
    questions = [index for index in range(len(dataset)) if dataset.record(index).fields][:12]
    assert len({len(dataset.record(index).fields) for index in questions}) > 1
    batch = load(dataset, np.array(questions), answers=False)
    hidden = torch.randn(*batch.ids.shape, SMOKE.sizes.hidden)
    lm_head = torch.randn(vocabulary(data / TOKENIZER), SMOKE.sizes.hidden)
    logits = logits_of(head, hidden, lm_head, batch)
    for row, index in enumerate(questions):
        record = dataset.record(index)
        length = len(record.input_ids)
        fields = [
            RecordField(f.type, f.question, tuple((int(a), int(b)) for a, b in f.options))
            for f in record.fields
        ]
        ours = head.score(hidden[row, :length], record.input_ids.tolist(), lm_head, fields)
        for place, expected in enumerate(ours):
            assert torch.allclose(logits[row, place, : len(expected)], expected, atol=1e-4)
            assert logits[row, place, len(expected) :].isneginf().all()


def test_the_loss_is_least_at_the_right_distribution(data):
    dataset = Dataset(data / TRAIN)
    indices = np.array([i for i in range(len(dataset)) if dataset.record(i).fields][:8])
    batch = load(dataset, indices, answers=False)
    there = batch.options[..., 0] >= 0
    right = batch.targets.clamp(min=1e-6).log().masked_fill(~there, -torch.inf)
    even = torch.zeros_like(right).masked_fill(~there, -torch.inf)
    assert (losses(right, batch) <= losses(even, batch) + 1e-4).all()
    entropy = -(batch.targets * batch.targets.clamp(min=1e-9).log()).sum(-1)
    asked = batch.questions[..., 0] >= 0
    assert torch.allclose(losses(right, batch), entropy[asked], atol=1e-4)


@pytest.mark.parametrize("stage", ["base", "decide"])
def test_stopping_after_every_step_gives_the_same_weights_to_the_bit(
    stage, data, trained, tmp_path
):
    options = OPTIONS | {"save_every": 1, "steps": 3}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):  # the second stage needs the first
        shutil.copytree(trained / "base", folder / "base") if stage == "decide" else None
    run_stage(stage, SMOKE, data, whole, options, minutes=10, device="cpu")
    for step in (1, 2, 3):
        record = run_stage(stage, SMOKE, data, parts, options, minutes=0, device="cpu")
        assert record["step"] == step
    one, other = (checkpoint.load(folder / stage)["weights"] for folder in (whole, parts))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_with_other_options_is_refused(data, trained):
    with pytest.raises(ValueError, match="give the same options"):
        run_stage("base", SMOKE, data, trained, OPTIONS | {"rate": 1.0}, minutes=1, device="cpu")


def test_a_damaged_checkpoint_is_refused_and_an_interrupted_one_is_found(tmp_path):
    state = {"x": torch.arange(5_000_000)}
    folder = tmp_path / "c"
    checkpoint.save(folder, state)
    assert len(list(folder.glob("part-*"))) == 3
    assert max(part.stat().st_size for part in folder.iterdir()) <= checkpoint.PART
    folder.rename(tmp_path / "c.old")
    assert torch.equal(checkpoint.load(folder)["x"], state["x"])
    (folder / "part-1").write_bytes(b"no")
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load(folder)


@given(st.lists(st.integers(20, 16_000), min_size=1, max_size=200), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_lengths_follow_the_curriculum(lengths: list[int], seed: int):
    made = np.array(lengths)
    steps = 60
    schedule = list(Schedule(made, tokens=4096, steps=steps, seed=seed))
    again = list(Schedule(made, tokens=4096, steps=steps, seed=seed))
    assert all((one == other).all() for one, other in zip(schedule, again, strict=True))
    assert len(schedule) == steps
    for each in schedule:
        size = max(len(each), 1) * min(size for size in BUCKETS if size >= made[each].max())
        assert size <= 4096 or len(each) == 1
    shortest = next(size for size in BUCKETS if size >= made.min())
    assert made[schedule[0]].max() <= max(CURRICULUM[0][1], shortest)


def test_long_records_are_a_tenth_of_the_batches_at_most():
    lengths = np.array([200] * 400 + [16_000] * 400)
    schedule = list(Schedule(lengths, tokens=2048, steps=400, seed=1))
    late = schedule[-60:]
    assert sum(lengths[each].max() > LONG for each in late) > 0
    long = sum(lengths[each].max() > LONG for each in schedule)
    assert long <= LONG_SHARE * len(schedule) + 1


def test_tests_are_measured_all_of_them_and_once():
    lengths = np.array([300, 16_000, 50, 17_000, 700, 301, 90, 17_000, 90])
    found = [each.tolist() for each in in_order_of_length(lengths, tokens=1000)]
    assert sorted(index for each in found for index in each) == list(range(9))
    assert all(len(each) == 1 or len(each) * lengths[each].max() <= 1000 for each in found)


def test_what_ships_is_made_by_the_products_own_tools(data, trained, tmp_path):
    write(SMOKE, data, trained, tmp_path)
    bundle = ship(tmp_path / "base", tmp_path / "tuned", tmp_path / "bundle", rank=4, name="smoke")
    assert not bundle.arbitrary
    assert bundle.adapter_rank == 4
    assert bundle.base.is_relative_to(bundle.path)
    assert bundle.manifest.answer
    verify(bundle)
    ask = ask_from_questions(state="X . .", questions=(noul("q", "Is it so?"),))
    found = verify_adapter(bundle, [ask], lambda *_: None, tuned=tmp_path / "tuned")
    assert found.answers is not None
    assert found.answers.probability < 0.02
    assert len(found.matrices) == 23
    moved = tmp_path / "moved"
    bundle.path.rename(moved)
    assert load_bundle(moved).hash == bundle.hash
    records = [json.loads((trained / f"{s}-record.json").read_text()) for s in ("base", "decide")]
    told = card(load_bundle(moved), *records, figures=None)
    assert records[1]["data_hash"][:16] in told
    assert "tictactoe: move" in told
    again = card(load_bundle(moved), records[0], records[1] | {"before": records[1]}, figures=None)
    assert "gone on" in again


def test_a_base_that_is_not_finished_is_not_built_on(data, tmp_path):
    options = OPTIONS | {"save_every": 2}
    record = run_stage("base", SMOKE, data, tmp_path, options, minutes=0, device="cpu")
    assert record["step"] == 2
    with pytest.raises(SystemExit, match="not finished"):
        run_stage("decide", SMOKE, data, tmp_path, OPTIONS, minutes=0, device="cpu")


def test_nano_fits_into_what_may_ship():
    size = 2 * sum(parameters(RECIPES["nano"], 4096).values())
    tokenizer, report = 300_000, 300_000
    assert size + tokenizer + report < MOST_BYTES


def test_loss_falls_on_what_is_learned(data):
    dataset = Dataset(data / TRAIN)
    torch.manual_seed(1)
    rows = vocabulary(data / TOKENIZER)
    base = BaseStage(SMOKE, rows)
    weights = {name: each.detach().clone() for name, each in base.module.state_dict().items()}
    stage = DecideStage(SMOKE, rows, weights)
    indices = [i for i in range(len(dataset)) if dataset.record(i).fields]
    batch = load(dataset, np.array(indices[:4]), answers=False)
    optimizer = torch.optim.Adam(
        [each for each in stage.module.parameters() if each.requires_grad], lr=3e-3
    )
    frozen = stage.module.text.layers[0].mlp.up_proj.weight.clone()
    found: list[float] = []
    for _ in range(20):
        loss = stage.loss(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    assert found[-1] < 0.7 * found[0]
    assert torch.equal(stage.module.text.layers[0].mlp.up_proj.weight, frozen)
    assert stage.module.text.layers[7].mlp.up_proj.lora_b.abs().sum() > 0


@pytest.mark.long
def test_a_steps_cost_is_told(data):
    lines = list(measure_steps(SMOKE, data, "cpu"))
    assert len(lines) == 4
    assert all("tokens/s" in line for line in lines)


def test_the_test_set_is_another_one(data):
    assert Dataset(data / TEST).hash != Dataset(data / TRAIN).hash


def test_a_run_begins_with_what_another_has_learned(data, trained, tmp_path):
    shutil.copytree(trained / "base", tmp_path / "base")
    options = OPTIONS | {"steps": 1, "rate": 0.0, "save_every": 1}
    run_stage("decide", SMOKE, data, tmp_path, options, minutes=1, device="cpu", start=trained)
    one, other = (checkpoint.load(run / "decide")["weights"] for run in (trained, tmp_path))
    assert all(torch.equal(one[name], other[name]) for name in one)
    record = json.loads((tmp_path / "decide-record.json").read_text())
    assert record["before"]["stage"]["step"] == OPTIONS["steps"]
