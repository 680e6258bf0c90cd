from __future__ import annotations

import msgspec
import pytest

torch = pytest.importorskip("torch")

from engine.llm.features import FeaturePool  # noqa: E402
from engine.llm.plan import ReadPlan  # noqa: E402
from engine.llm.reading import Reader  # noqa: E402
from engine.tokens import RecordField  # noqa: E402

QUESTION = 1
PLAN = ReadPlan(
    fields=(RecordField(1, (QUESTION, 2), ((2, 3),)),), state_start=0, public_end=0, state_end=1
)
WIDTH = 3
BLOCK = 4


class Sum:
    """Stands for the head: one logit, the sum of all features and of the states it asks for."""

    def __init__(self):
        self.states: list[int] = []  # of each call

    def memory(self, hidden):
        return hidden

    def logits(self, features, tails, places):
        self.states.append(len(features))
        sums = [each.state.sum() + rest.sum() for each in features for rest in each.rests]
        return [(sum + tail.sum()).reshape(1) for sum, tail in zip(sums, tails, strict=True)]


class Engine:
    """Runs a reader over requests whose blocks are given out in turn."""

    def __init__(self) -> None:
        self.pool = FeaturePool(16, BLOCK, WIDTH, dtype=torch.float32)
        self.reader = Reader(Sum(), torch.zeros(100, WIDTH), self.pool)
        self.blocks: dict[str, list[int]] = {}

    def begin(self, name: str, length: int, blocks: list[int] | None = None) -> None:
        if blocks is None:
            first = sum(map(len, self.blocks.values()))
            blocks = list(range(first, first + -(-length // BLOCK)))
        self.blocks[name] = blocks
        self.reader.begin(name, list(range(length)), PLAN, "")

    def step(self, *parts: tuple[str, int, int], padding: int = 0) -> dict[str, list[float]]:
        """Read (request, start, count) in one step, each row naming its position."""
        hidden = torch.cat([rows(start, count) for _, start, count in parts] + [rows(7, padding)])
        slots = [
            self.blocks[name][at // BLOCK] * BLOCK + at % BLOCK if name in self.blocks else 63
            for name, start, count in parts
            for at in range(start, start + count)
        ]
        logits = self.reader.step(
            [name for name, _, _ in parts],
            {name: count for name, _, count in parts},
            {name: start for name, start, _ in parts},
            hidden,
            torch.tensor(slots),
            lambda name, start, end: self.pool.read(self.blocks[name], start, end),
        )
        return {name: values.tolist() for name, values in logits.items()}


@pytest.fixture
def engine():
    return Engine()


def rows(first: int, count: int):
    return torch.arange(first, first + count).float()[:, None].expand(count, WIDTH)


def total(length: int) -> list[float]:
    return [float((sum(range(length)) + sum(range(QUESTION, length))) * WIDTH)]


def test_chunks_of_any_size_come_together(engine):
    engine.begin("a", 10)
    for start, count in ((0, 1), (1, 4), (5, 3)):
        assert engine.step(("a", start, count)) == {}
    assert engine.step(("a", 8, 2)) == {"a": total(10)}


def test_a_preempted_record_starts_again(engine):
    engine.begin("a", 6)
    engine.step(("a", 0, 4))
    engine.step(("a", 0, 2))
    assert engine.step(("a", 2, 4)) == {"a": total(6)}


def test_rows_belong_to_requests_in_the_order_of_the_batch(engine):
    engine.begin("a", 3)
    engine.begin("b", 4)
    found = engine.step(("b", 0, 4), ("chat", 9, 4), ("a", 0, 3), padding=5)
    assert found == {"a": total(3), "b": total(4)}


def test_a_row_that_never_came_makes_the_answer_nan(engine):
    engine.begin("a", 6)
    [[logit]] = engine.step(("a", 3, 3)).values()
    assert logit != logit


def test_features_of_another_request_serve_one_with_its_blocks(engine):
    engine.begin("a", 9)
    engine.step(("a", 0, 9))
    engine.begin("b", 9, [0, 1, 5])
    engine.pool.rows[2 * BLOCK :] = torch.nan
    [[logit]] = engine.step(("b", 8, 1)).values()
    assert logit != logit  # its states from the question on were not read
    shared = ReadPlan(
        fields=(RecordField(1, (8, 9), ((8, 9),)),), state_start=0, public_end=8, state_end=8
    )
    engine.reader.begin("b", list(range(9)), shared, "")
    assert engine.step(("b", 8, 1)) == {"b": [float((sum(range(9)) + 8) * WIDTH)]}


def test_a_copied_block_has_the_features(engine):
    engine.begin("a", 4)
    engine.step(("a", 0, 4))
    engine.pool.copy([(0, 7), (3, 8)])
    torch.testing.assert_close(engine.pool.read([7], 0, 4), rows(0, 4))
    assert engine.pool.read([8], 0, 4).isnan().all()


def test_kernels_may_divide_blocks():
    pool = FeaturePool(4, 6, 1, dtype=torch.float32)
    pool.write(torch.arange(24), torch.arange(24.0)[:, None])
    whole = pool.read([3, 1], 0, 9)
    parts = torch.tensor([9, 10, 11, 3, 4], dtype=torch.int32)  # as the newer model runner has them
    torch.testing.assert_close(pool.read(parts, 0, 9, 2), whole)
    torch.testing.assert_close(pool.read([3, 1], 7, 9), whole[7:])
    torch.testing.assert_close(pool.read(parts, 5, 9, 2), whole[5:])
    assert pool.nbytes == 4 * 6 * 1 * 4


def test_tokens_behind_the_record_are_no_second_answer(engine):
    engine.begin("a", 3, [0, 1])
    assert engine.step(("a", 0, 3))
    assert engine.step(("a", 3, 1)) == {}


def test_what_ended_is_forgotten(engine):
    engine.begin("a", 3)
    engine.reader.forget(["a", "a chat"])
    assert len(engine.reader) == 0
    assert engine.step(("a", 0, 3)) == {}


@pytest.mark.parametrize(("tokens", "calls"), [(27, [3]), (26, [2, 1]), (10, [1, 1, 1])])
def test_questions_on_one_state_are_scored_together(engine, monkeypatch, tokens, calls):
    monkeypatch.setattr("engine.llm.reading._TOKENS", tokens)
    plan = ReadPlan(
        fields=(RecordField(1, (5, 6), ((6, 7),)),), state_start=0, public_end=0, state_end=5
    )
    salted = msgspec.structs.replace(plan, salt="other")
    for name, each, adapter in (
        ("a", plan, "x"),
        ("b", plan, "x"),
        ("salted", salted, "x"),
        ("bare", plan, ""),
    ):
        engine.begin(name, 8)
        engine.reader.begin(name, [*range(7), 9], each, adapter)
    found = engine.step(*((name, 0, 8) for name in ("a", "salted", "bare", "b")))
    assert engine.reader._head.states == calls
    assert list(found.values()) == 4 * [[(28.0 + 18) * WIDTH]]
