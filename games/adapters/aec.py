"""Any game as a PettingZoo AEC environment.

    from games.adapters.aec import env

    env("holdem", seats=3)

An observation is the view of the agent's seat as UTF-8 bytes, padded with zeros, and a mask of the
options; an action is the place of an option among the legal ones. `infos` has the text itself and
the options' labels. Chance is drawn from the seed of `reset`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from games.base import CHANCE, Game, State
from games.errors import BadGameParameters, IllegalAction, UnsupportedGame
from games.registry import load_game

try:
    import gymnasium
    import numpy as np
    from gymnasium.utils import seeding
    from pettingzoo import AECEnv
    from pettingzoo.utils.conversions import aec_to_parallel
except ImportError as missing:
    raise UnsupportedGame(
        "games as environments need PettingZoo; install it with pip install 'ostinato[pettingzoo]'"
    ) from missing

LOG_BYTES = 16_384
"""How much a view may grow, by default, after the first one."""


class GameEnv(AECEnv[str, dict[str, Any], int | None]):
    """One game as an environment; its agents are `seat_0` and so on.

    Args:
        game: A game, or its id.
        seats: By default the fewest that the game has.
        max_cycles: Truncates a match after so many turns of each seat.
        observation_bytes: The longest view that can be observed; by default 16 KiB more than the
            first one has.
        parallel: Whether every seat acts once a cycle and sees nothing of the others' choices
            before its end, as in games whose players act at once; then `aec_to_parallel` applies.
        render_mode: `ansi` gives the text of the selected seat's view.
    """

    def __init__(
        self,
        game: Game | str,
        *,
        seats: int | None = None,
        max_cycles: int | None = None,
        observation_bytes: int | None = None,
        parallel: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        self._game = load_game(game) if isinstance(game, str) else game
        facts = self._game.facts
        count = facts.min_seats if seats is None else seats
        self._max_turns = None if max_cycles is None else max_cycles * count
        first = self._game.start(seats=count, seed=0).view(0).text
        self._bytes = observation_bytes or len(first.encode()) + LOG_BYTES
        self.render_mode = render_mode
        self.metadata = {
            "name": facts.id,
            "render_modes": ["ansi"],
            "is_parallelizable": parallel or count == 1,
        }
        self.possible_agents = [f"seat_{seat}" for seat in range(count)]
        self._most = facts.max_options
        self._spaces = {agent: self._observations() for agent in self.possible_agents}
        self._actions = {
            agent: gymnasium.spaces.Discrete(self._most) for agent in self.possible_agents
        }
        self._random, _ = seeding.np_random()
        self.agents = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a match, of which everything that looks random comes from the seed."""
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        self.agents = list(self.possible_agents)
        self._turns = 0
        state = self._game.start(seats=len(self.agents), seed=int(self._random.integers(2**31)))
        self._state = self._settled(state)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._select()

    def step(self, action: int | None) -> None:
        """Take an option by its place among the legal ones.

        Raises:
            IllegalAction: There are fewer options.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        labels = [option.id for option in self._state.options()]
        if action is None or not 0 <= action < len(labels):
            raise IllegalAction(f"action {action}", tuple(labels))
        before = self._state.returns()
        self._state = self._settled(self._state.apply(labels[action]))
        self._turns += 1
        gained = zip(self.possible_agents, before, self._state.returns(), strict=True)
        self.rewards = {agent: now - then for agent, then, now in gained}
        self._cumulative_rewards[agent] = 0.0
        self._accumulate_rewards()
        over = self._state.actor is None
        self.terminations = dict.fromkeys(self.agents, over)
        cut = not over and self._max_turns is not None and self._turns >= self._max_turns
        self.truncations = dict.fromkeys(self.agents, cut)
        self._select()

    def observe(self, agent: str) -> dict[str, Any]:
        """Give the view of an agent's seat, and a mask of what it may do now."""
        text = self._state.view(self._seat(agent)).text.encode()
        if len(text) > self._bytes:
            raise BadGameParameters(
                f"{self.metadata['name']}: a view has {len(text)} bytes, and observation_bytes is"
                f" {self._bytes}; make the environment with more"
            )
        observation = np.zeros(self._bytes, dtype=np.uint8)
        observation[: len(text)] = np.frombuffer(text, dtype=np.uint8)
        mask = np.zeros(self._most, dtype=np.int8)
        if self._state.actor == self._seat(agent):
            mask[: len(self._state.options())] = 1
        return {"observation": observation, "action_mask": mask}

    def observation_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
        """Give the space of observations, the same object each time."""
        return self._spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
        """Give the space of actions, the same object each time."""
        return self._actions[agent]

    def render(self) -> str | None:
        """Give the text of the selected seat's view, in the mode `ansi`."""
        if self.render_mode is None:
            return None
        return self._state.view(self._seat(self.agent_selection)).text

    def close(self) -> None:
        """Nothing is held open."""

    def __str__(self) -> str:
        return str(self.metadata["name"])

    def _observations(self) -> gymnasium.spaces.Dict:
        return gymnasium.spaces.Dict(
            {
                "observation": gymnasium.spaces.Box(0, 255, (self._bytes,), np.uint8),
                "action_mask": gymnasium.spaces.Box(0, 1, (self._most,), np.int8),
            }
        )

    def _seat(self, agent: str) -> int:
        return self.possible_agents.index(agent)

    def _select(self) -> None:
        """Pass the turn on; at the end to the agent after the one that acted last."""
        actor = self._state.actor
        if actor is not None:
            self.agent_selection = self.possible_agents[actor]
        elif self._turns:
            after = (self._seat(self.agent_selection) + 1) % len(self.possible_agents)
            self.agent_selection = self.possible_agents[after]
        else:
            self.agent_selection = self.possible_agents[0]
        self.infos = {agent: self._info(agent) for agent in self.agents}

    def _info(self, agent: str) -> dict[str, Any]:
        mine = self._state.actor == self._seat(agent)
        options = tuple(option.id for option in self._state.options()) if mine else ()
        return {"text": self._state.view(self._seat(agent)).text, "options": options}

    def _settled(self, state: State) -> State:
        """Draw for chance until a seat is to act."""
        while state.actor == CHANCE:
            outcomes = state.outcomes()
            sums = list(accumulate(outcome.weight for outcome in outcomes))
            drawn = float(self._random.random()) * sums[-1]
            state = state.apply(
                next(o.id for o, s in zip(outcomes, sums, strict=True) if drawn < s)
            )
        return state


def env(game: Game | str, **settings: Any) -> GameEnv:
    """Make an environment; `GameEnv` has the settings."""
    return GameEnv(game, **settings)


def parallel_env(game: Game | str, **settings: Any) -> Any:
    """Make a parallel environment of a game with one seat, or whose players act at once."""
    return aec_to_parallel(GameEnv(game, parallel=True, **settings))
