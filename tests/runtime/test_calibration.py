from __future__ import annotations

import pytest

from runtime.calibration import Calibration


def test_scores_of_hand_computed_answers() -> None:
    scores = Calibration()
    assert scores.brier is scores.ece is None
    scores.add((0.8, 0.2), 0)  # (0.2)^2 + (0.2)^2 = 0.08, right
    scores.add((0.8, 0.2), 1)  # (0.8)^2 + (0.8)^2 = 1.28, wrong
    scores.add((0.25, 0.35, 0.4), 2)  # 0.0625 + 0.1225 + 0.36 = 0.545, right
    assert scores.brier == pytest.approx((0.08 + 1.28 + 0.545) / 3)
    assert scores.ece == pytest.approx((abs(0.4 - 1) + abs(1.6 - 1)) / 3)
    assert [each.answers for each in scores.bins()] == [1, 2]


def test_certainty_is_in_the_last_bin() -> None:
    scores = Calibration()
    scores.add((1.0, 0.0), 0)
    assert scores.brier == scores.ece == 0
    assert scores.bins()[0].confidence == scores.bins()[0].right == 1
