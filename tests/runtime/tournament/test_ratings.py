from __future__ import annotations

import pytest

from runtime.tournament.ratings import Skills, bradley_terry
from runtime.tournament.stats import elo

pytest.importorskip("choix")


def test_two_agents_have_the_difference_of_their_score() -> None:
    counts = (96, 111, 136)
    one, two = bradley_terry({(0, 1): counts}, 2)
    expected = elo(counts)
    assert expected is not None
    assert one.elo - two.elo == pytest.approx(expected.difference, abs=0.05)
    assert one.elo + two.elo == pytest.approx(0, abs=1e-6)
    decided = elo((96 + 55, 0, 136 + 56))  # drawn halves: the same information as no draws
    assert decided is not None
    assert 2 * one.error == pytest.approx(decided.error, rel=0.02)


def test_strengths_are_found_again() -> None:
    chance = {(0, 1): 0.75, (1, 2): 0.75, (0, 2): 0.9}  # odds 3, 3 and 9
    meetings = {who: (round(1000 * (1 - p)), 0, round(1000 * p)) for who, p in chance.items()}
    best, middle, last = bradley_terry(meetings, 3)
    assert best.elo - middle.elo == pytest.approx(190.8, abs=0.5)
    assert middle.elo - last.elo == pytest.approx(190.8, abs=0.5)


def test_more_matches_narrow_the_interval_and_perfect_scores_stay_finite() -> None:
    few, many = (bradley_terry({(0, 1): (n, 0, n)}, 2)[0].error for n in (10, 1000))
    assert few == pytest.approx(10 * many, rel=0.02)
    best, _ = bradley_terry({(0, 1): (0, 0, 20)}, 2)
    assert 200 < best.elo < 2000
    assert [each.elo for each in bradley_terry({}, 3)] == [0, 0, 0]


def test_skill_follows_places_and_equal_returns_share_one() -> None:
    skills = Skills(3)
    for _ in range(20):
        skills.add((0, 1, 2), (1.0, 0.0, -1.0))
        skills.add((2, 0, 1), (-1.0, 1.0, 0.0))
    (first, _), (second, _), (third, _) = skills.ratings()
    assert first > second > third
    level = Skills(3)
    level.add((0, 1, 2), (1.0, 1.0, 1.0))
    means = [mean for mean, _ in level.ratings()]
    assert max(means) - min(means) < 1
