from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.tokens import PREFIX, SUFFIX, Encoder
from games.questions import TRUE
from games.solved import tictactoe
from games.solved.judged import is_test
from games.tictactoe import TicTacToeState, winner
from runtime.exam.positions import expedition_positions, kuhn_positions, tictactoe_positions
from tools.nano.dataset import TEST, TOKENIZER, TRAIN, Dataset, key_bits
from tools.nano.generate import generate
from tools.nano.records import learned
from tools.nano.wording import vary

ONLY = "tictactoe,kuhn,plain"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    generate(out, scale=0.02, seed=1, workers=1, only=ONLY)
    return out


@pytest.fixture(scope="module")
def train(folder: Path) -> Dataset:
    return Dataset(folder / TRAIN)


@pytest.fixture(scope="module")
def text(folder: Path):
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER / "tokenizer.json"))
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


def test_the_same_seed_gives_the_same_records_whatever_the_number_of_workers(folder, tmp_path):
    generate(tmp_path, scale=0.02, seed=1, workers=2, only=ONLY)
    for name in (TRAIN, TEST):
        assert Dataset(tmp_path / name).hash == Dataset(folder / name).hash
    tokenizers = [each / TOKENIZER / "tokenizer.json" for each in (tmp_path, folder)]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()


def test_no_test_position_is_learned_from(folder, train):
    test = Dataset(folder / TEST)
    assert len(test) >= 20
    assert not set(train.keys.tolist()) & set(test.keys.tolist())
    marks = {"tested": 0, "learned": 0}
    for cells, seat in tictactoe.reachable():
        if "." in cells and winner(cells) is None:
            position = tictactoe.position(TicTacToeState(cells, seat, ""))
            marks["tested" if position.test else "learned"] += 1
            if position.test:
                assert key_bits(position.key) not in train.keys
            else:
                assert key_bits(position.key) not in test.keys
    assert 0.08 < marks["tested"] / sum(marks.values()) < 0.16


def test_a_map_is_learned_from_or_tested_as_a_whole():
    for test in (False, True):
        source = random.Random(5)
        found = list(
            islice(expedition_positions(source, rules="none", size="tiny", each=2, test=test), 6)
        )
        assert len({each.key for each in found}) == 3
        assert all(is_test(each.key) == test == each.test for each in found)


def test_spans_hold_what_is_asked_and_targets_stand_at_their_options(train, text):
    kinds: set[str] = set()
    for index in range(0, len(train), 7):
        record = train.record(index)
        whole = text(record.input_ids)
        if not record.fields:
            continue
        assert whole.startswith(PREFIX)
        assert whole.endswith(SUFFIX)
        for field in record.fields:
            kinds.add(train.kinds[field.kind])
            assert f"INSTRUCTION: {text(record.input_ids[slice(*field.question)])}\n" in whole
            options = [text(record.input_ids[slice(*span)]) for span in field.options]
            assert all(option.startswith("{") and option.endswith("}") for option in options)
            assert field.target.sum() == pytest.approx(1)
            assert len(field.values) == len(options)
            if field.type == 1:
                ids = [option.split('"option_id":')[1] for option in options]
                assert ids == sorted(ids)
        answer = text(record.answer)
        assert answer.count("\n") == len(record.fields)
        assert answer.endswith("<|im_end|>")
    assert {"move", "action", "wins_now", "rank"} <= kinds


def test_a_move_that_wins_at_once_is_where_the_target_is(train, text):
    found = 0
    for index in range(len(train)):
        record = train.record(index)
        for field in record.fields:
            if train.kinds[field.kind] != "move":
                continue
            options = [text(record.input_ids[slice(*span)]) for span in field.options]
            wins = np.array(["wins at once" in option for option in options])
            if wins.any():
                found += 1
                assert field.target[wins].sum() == pytest.approx(1)
    assert found > 30


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_other_words_change_no_meaning(seed: int, skipped: int):
    """What an option is called may change; what it says of itself, and how right it is, may not."""
    source = random.Random(seed)
    position = next(islice(tictactoe_positions(source, test=False), skipped, None))
    for judged in position.judged:
        before = {o.id: t for o, t in zip(judged.question.options, judged.target, strict=True)}
        varied = vary(judged, position.game, source)
        assert varied.question.type == judged.question.type
        assert sum(varied.target) == pytest.approx(1)
        best_before = {name for name, share in before.items() if share}
        kept: set[str] = set()
        for option, share in zip(varied.question.options, varied.target, strict=True):
            original = (
                option.id if option.id in before else (option.description or "").partition(":")[0]
            )
            kept.add(original)
            assert original in before
            if share and best_before & kept:
                assert judged.values is not None or original in best_before
        if judged.values is None:
            assert best_before & kept


def test_records_have_one_question_or_several(train):
    numbers = {len(train.record(index).fields) for index in range(len(train))}
    assert {0, 1, 2, 3} <= numbers


def test_a_state_may_be_short_or_hold_the_whole_rulebook(folder):
    encoder, source = Encoder(folder / TOKENIZER), random.Random(1)
    short = min(
        len(record.input_ids)
        for position in islice(kuhn_positions(source), 12)
        for record in learned(position, encoder, source)
    )
    [long] = learned(
        next(expedition_positions(source, rules="full", size="tiny", each=1, test=False)),
        encoder,
        source,
    )
    assert short < 320
    assert 12_000 < len(long.input_ids) < 20_000
    words = [o.description for j in _judged(source) for o in j.question.options]
    assert TRUE in words


def _judged(source: random.Random):
    return next(tictactoe_positions(source, test=False)).judged
