from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engine.llm.reading import Reader  # noqa: E402

FIELDS = [{"type": 1, "question_span": [0, 1], "option_spans": [[1, 2]]}]
WIDTH = 3


class Sum:
    """Stands for the head: one logit, the sum of all states."""

    def score(self, hidden, input_ids, lm_head, fields):
        assert len(hidden) == len(input_ids)
        return [hidden.sum().reshape(1) for _ in fields]


@pytest.fixture
def reader():
    return Reader(Sum(), torch.zeros(1, WIDTH))


def rows(first: int, count: int):
    """States that name their position."""
    return torch.arange(first, first + count).float()[:, None].expand(count, WIDTH)


def total(length: int) -> float:
    return float(sum(range(length)) * WIDTH)


def test_chunks_of_any_size_come_together(reader):
    reader.begin("a", list(range(10)), FIELDS)
    for start, count in ((0, 1), (1, 4), (5, 3)):
        assert reader.step(["a"], {"a": count}, {"a": start}, rows(start, count)) == {}
    logits = reader.step(["a"], {"a": 2}, {"a": 8}, rows(8, 2))
    assert logits["a"].tolist() == [total(10)]


def test_a_preempted_record_starts_again(reader):
    reader.begin("a", list(range(6)), FIELDS)
    reader.step(["a"], {"a": 4}, {"a": 0}, rows(0, 4))
    reader.step(["a"], {"a": 2}, {"a": 0}, rows(0, 2))
    assert reader.step(["a"], {"a": 4}, {"a": 2}, rows(2, 4))["a"].tolist() == [total(6)]


def test_rows_belong_to_requests_in_the_order_of_the_batch(reader):
    reader.begin("a", list(range(2)), FIELDS)
    reader.begin("b", list(range(3)), FIELDS)
    hidden = torch.cat((rows(0, 3), rows(100, 4), rows(0, 2), rows(7, 5)))  # the last are padding
    counts = {"a": 2, "chat": 4, "b": 3}
    logits = reader.step(["b", "chat", "a"], counts, {"a": 0, "chat": 9, "b": 0}, hidden)
    assert {name: value.tolist() for name, value in logits.items()} == {
        "a": [total(2)],
        "b": [total(3)],
    }


def test_a_row_that_never_came_makes_the_answer_nan(reader):
    reader.begin("a", list(range(6)), FIELDS)
    assert reader.step(["a"], {"a": 3}, {"a": 3}, rows(3, 3))["a"].isnan().all()


def test_tokens_behind_the_record_are_no_second_answer(reader):
    reader.begin("a", list(range(2)), FIELDS)
    assert reader.step(["a"], {"a": 2}, {"a": 0}, rows(0, 2))
    assert reader.step(["a"], {"a": 1}, {"a": 2}, rows(2, 1)) == {}


def test_what_ended_is_forgotten(reader):
    reader.begin("a", list(range(2)), FIELDS)
    reader.forget(["a", "a chat"])
    assert len(reader) == 0
    assert reader.step(["a"], {"a": 2}, {"a": 0}, rows(0, 2)) == {}
