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
    """

    temperature: float = 0.0
    floor: float = 0.0

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
        return pick(weights, draw)


def make_policy(parameters: Mapping[str, str]) -> Policy:
    """Make a policy of an agent's parameters; a floor alone implies temperature 1.

    Raises:
        UnknownAgent: A parameter is unknown or not a number in its range.
    """
    values: dict[str, float] = {}
    for name, text in parameters.items():
        if name not in Policy.__struct_fields__:
            known = ", ".join(Policy.__struct_fields__)
            raise UnknownAgent(f"decision: no parameter {name!r}; there are {known}")
        limit = 1.0 if name == "floor" else 100.0
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = -1.0
        if not 0 <= values[name] <= limit:
            raise UnknownAgent(f"decision:{name}={text}: give a number from 0 to {limit:g}")
    if values.get("floor") and "temperature" not in values:
        values["temperature"] = 1.0
    return Policy(**values)
