"""A small environment of our own: numbers come from the seed, and agents take them or not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from pettingzoo import AECEnv

ROUNDS = 4


class Generator(AECEnv[str, Any, Any]):
    def __init__(self, *, numbered: bool = True) -> None:
        super().__init__()
        self.metadata = {"name": "generator"}
        self.possible_agents = ["player_0", "player_1"]
        numbers, pictures = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(0, 1, (1,))
        self.space: Any = numbers if numbered else pictures

    def action_space(self, agent: str) -> Any:
        return self.space

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(0, 10, (1,), np.int64)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.random, _ = seeding.np_random(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.turns = 0
        self.agent_selection = self.agents[0]
        self.number = int(self.random.integers(1, 10))

    def observe(self, agent: str) -> Any:
        return np.array([self.number if agent == self.agent_selection else 0])

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self.turns += 1
        self.rewards = dict.fromkeys(self.agents, 0.0) | {agent: self.number * (1.0 - action)}
        self._accumulate_rewards()
        self.number = int(self.random.integers(1, 10))
        self.agent_selection = self.possible_agents[self.turns % 2]
        self.terminations = dict.fromkeys(self.agents, self.turns == 2 * ROUNDS)
