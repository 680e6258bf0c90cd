"""Ratings of all agents of a tournament from their meetings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runtime.errors import BadInput
from runtime.tournament.stats import ELO, Z95

PRIOR = 0.01
"""Weight of the prior which keeps the rating of an agent that never lost finite."""


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's Elo, where the mean of all is 0; `error` is half a 95 % interval."""

    elo: float
    error: float


def bradley_terry(meetings: Mapping[tuple[int, int], Sequence[int]], agents: int) -> list[Rating]:
    """Fit strengths to all meetings at once; a draw counts as half a win for each.

    The intervals follow from the information matrix at the fit.

    Args:
        meetings: Losses, draws, wins of the first against the second.
        agents: How many there are.

    Raises:
        BadInput: The library is not installed.
    """
    if agents < 2 or not any(map(sum, meetings.values())):
        return [Rating(elo=0.0, error=0.0)] * agents
    try:
        import choix
        import numpy as np
    except ImportError as error:
        raise _missing() from error
    wins = np.zeros((agents, agents))
    for (one, two), (lost, drawn, won) in meetings.items():
        wins[one, two] += won + drawn / 2
        wins[two, one] += lost + drawn / 2
    strengths = choix.ilsr_pairwise_dense(wins, alpha=PRIOR, max_iter=10_000, tol=1e-6)
    strengths = strengths - strengths.mean()
    information = np.eye(agents) * PRIOR
    for one in range(agents):
        for two in range(one):
            count = wins[one, two] + wins[two, one]
            chance = 1 / (1 + math.exp(strengths[two] - strengths[one]))
            weight = count * chance * (1 - chance)
            information[one, one] += weight
            information[two, two] += weight
            information[one, two] -= weight
            information[two, one] -= weight
    centre = np.eye(agents) - 1 / agents
    spread = centre @ np.linalg.inv(information) @ centre
    return [
        Rating(elo=ELO * float(strength), error=Z95 * ELO * math.sqrt(max(0.0, spread[at, at])))
        for at, strength in enumerate(strengths)
    ]


class Skills:
    """Ratings of agents that meet in matches of more than two seats, match by match.

    R. C. Weng and C.-J. Lin, "A Bayesian approximation method for online ranking", JMLR 12 (2011),
    with the model of Plackett and Luce, as openskill has it.
    """

    def __init__(self, agents: int) -> None:
        """Start with equal ratings; raises BadInput if the library is not installed."""
        try:
            from openskill.models import PlackettLuce
        except ImportError as error:
            raise _missing() from error
        self._model: Any = PlackettLuce()
        self._ratings = [self._model.rating() for _ in range(agents)]

    def add(self, players: Sequence[int], returns: Sequence[float]) -> None:
        """Count one match: more return is a better place, equal returns share it."""
        teams = [[self._ratings[player]] for player in players]
        for player, [rating] in zip(
            players, self._model.rate(teams, ranks=[-value for value in returns]), strict=True
        ):
            self._ratings[player] = rating

    def ratings(self) -> list[tuple[float, float]]:
        """Give mean and standard deviation of each agent's skill."""
        return [(rating.mu, rating.sigma) for rating in self._ratings]


def _missing() -> BadInput:
    return BadInput("a tournament needs openskill and choix; pip install 'ostinato[reports]'")
