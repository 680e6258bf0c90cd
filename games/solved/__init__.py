"""Games whose right answers can be computed: what a model's answers are held against.

Each module takes a state of its game and gives a `Position`: questions on it, and to each question
the distribution over its options that is right. Nothing here is used while a model plays.
"""

from __future__ import annotations

from games.solved.judged import Judged, Position

__all__ = ["Judged", "Position"]
