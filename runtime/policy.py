"""How a decision agent gets from probabilities to a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from runtime.draws import pick
from runtime.errors import UnknownAgent


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of choice; with everything at its default it takes the most probable option.

    Attributes:
        temperature: 0 takes the most probable option, the first of equals. Above it an option is
            drawn with weight p ** (1 / temperature): 1 follows the probabilities, more is wilder.
        floor: Options less probable than this are never drawn.
        top_p: Of what is left, only the heaviest are drawn that together have this share of the
            weight; of equals the first.
    """

    temperature: float = 0.0
    floor: float = 0.0
    top_p: float = 1.0

    @property
    def draws(self) -> bool:
        """Whether a choice needs a number in [0, 1)."""
        return self.temperature > 0

    def choose(self, probabilities: Sequence[float], draw: float | None) -> int:
        """Give the index of the option to take; `draw` is used if the policy `draws`."""
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        top = probabilities[best]
        if not self.draws or draw is None or top < self.floor or top <= 0:
            return best
        weights = [
            (p / top) ** (1 / self.temperature) if p >= self.floor else 0.0 for p in probabilities
        ]
        return pick(self._heaviest(weights), draw)

    def _heaviest(self, weights: list[float]) -> list[float]:
        """Drop the lightest, as far as `top_p` says."""
        if self.top_p >= 1:
            return weights
        left = self.top_p * sum(weights)
        kept = [0.0] * len(weights)
        for index in sorted(range(len(weights)), key=lambda index: -weights[index]):
            kept[index] = weights[index]
            left -= weights[index]
            if left <= 0:
                break
        return kept


def make_policy(parameters: Mapping[str, str]) -> Policy:
    """Make a policy of an agent's parameters; a floor or top_p alone implies temperature 1.

    Raises:
        UnknownAgent: A parameter is unknown or not a number in its range.
    """
    values: dict[str, float] = {}
    for name, text in parameters.items():
        if name not in Policy.__struct_fields__:
            known = ", ".join(Policy.__struct_fields__)
            raise UnknownAgent(f"decision: no parameter {name!r}; there are {known}")
        limit = 100.0 if name == "temperature" else 1.0
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = -1.0
        if not 0 <= values[name] <= limit:
            raise UnknownAgent(f"decision:{name}={text}: give a number from 0 to {limit:g}")
    drawing = values.get("floor", 0.0) > 0 or values.get("top_p", 1.0) < 1
    if drawing and "temperature" not in values:
        values["temperature"] = 1.0
    return Policy(**values)
