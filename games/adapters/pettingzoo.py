"""Any PettingZoo AEC environment with discrete actions as a game.

    from games.adapters.pettingzoo import PettingZooGame

    PettingZooGame(make=lambda: my_env(), id="mine", render=lambda env, agent: ...)

An environment changes in place, so a state here is the seed and the actions that led to it, with
what every agent then observed. The newest state holds the environment itself; asked to go on, an
older one makes a new environment and takes its actions again.

Chance stays inside the environment, which has to draw all of it from the seed of its `reset`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from games.adapters.observations import text_of
from games.base import GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction, UnknownGame, UnsupportedGame
from games.layouts import Layout, find_layout, laid_out
from games.questions import Option, Question, choice

MAX_SEATS = 10
SEED_BELOW = 2**31  # some environments hand their seed to generators that take no more
OPEN = frozenset({"classic/tictactoe-v3", "classic/connect_four-v3", "classic/go-v5"})
"""Environments in which every agent sees everything, so that actions are public."""

PLAIN = Layout(
    name="plain",
    version=1,
    rules="{title}\n{rules}\nPLAY\n",
    turns={"act": "{agent}: {action}\n"},
    options={},
)
BARE = msgspec.structs.replace(PLAIN, name="bare", rules="{title}\n\nPLAY\n", turns={"act": ""})
"""Tells no rules and no actions so far, only what an agent observes."""

Render = Callable[[Any, str], str]
"""Gives the text of what an agent sees of an environment."""

Label = Callable[[str, int], str]
"""Names an action of an agent; one name for one action."""


class Seen(msgspec.Struct, frozen=True):
    """What an environment shows after a step: who acts, what is legal, each agent's text."""

    actor: int | None
    legal: tuple[int, ...]
    texts: tuple[str, ...]
    returns: tuple[float, ...]


class PettingZooState:
    """A seed and the actions since."""

    __slots__ = ("_game", "_live", "_public", "_seed", "_seen", "_trail")

    def __init__(
        self,
        game: PettingZooGame,
        env: Any,
        seen: Seen,
        *,
        seed: int,
        public: str,
        trail: tuple[int, ...] = (),
    ) -> None:
        self._game = game
        self._live = [env]
        self._seen = seen
        self._seed = seed
        self._public = public
        self._trail = trail

    @property
    def actor(self) -> int | None:
        """The seat whose agent is selected, or None when no agent is left."""
        return self._seen.actor

    def options(self) -> tuple[Option, ...]:
        """Give the actions that the environment's mask allows."""
        return tuple(map(Option, self._labels()))

    def outcomes(self) -> tuple[Outcome, ...]:
        """Chance stays inside the environment."""
        return ()

    def apply(self, action: str) -> PettingZooState:
        """Step the environment; raises IllegalAction."""
        labels = self._labels()
        number = labels.get(action)
        if number is None or self._seen.actor is None:
            raise IllegalAction(action, tuple(labels))
        env = self._live.pop() if self._live else self._game.again(self._seed, self._trail)
        agent = self._game.agents[self._seen.actor]
        seen = self._game.step(env, number, self._seen)
        return PettingZooState(
            self._game,
            env,
            seen,
            seed=self._seed,
            public=self._public + self._game.told(agent, action),
            trail=(*self._trail, number),
        )

    def view(self, seat: int) -> View:
        """Give the actions so far where all see them, then what this seat's agent observes."""
        you = f"\nYou are {self._game.agents[seat]}.\n"
        return View(self._public, f"{you}{self._seen.texts[seat]}\n")

    def questions(self) -> tuple[Question, ...]:
        """Ask for an action."""
        if self._seen.actor is None:
            return ()
        agent = self._game.agents[self._seen.actor]
        return (choice("action", f"What should {agent} do now?", self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Give the sum of each agent's rewards."""
        return self._seen.returns

    def encode(self) -> bytes:
        """Give the game, the seed, all actions so far, and who is to act."""
        return f"{self._game.id} {self._seed} {self._trail} {self.actor}".encode()

    def rebase(self) -> PettingZooState:
        """An environment tells no summary of a match."""
        return self

    def _labels(self) -> dict[str, int]:
        if self._seen.actor is None:
            return {}
        agent = self._game.agents[self._seen.actor]
        return {self._game.label(agent, number): number for number in self._seen.legal}


class PettingZooGame:
    """The rules of one environment.

    Args:
        make: Makes a new environment.
        id: The id under which `load_game` gives this game.
        title: By default the environment's own name.
        rules: Text that stands above everything, such as what the numbers of actions mean.
        render: Writes what an agent sees; by default its observation, number by number.
        label: Names actions; by default by their number.
        hidden: Whether agents see different things. Only where they do not, actions are public.
        returns: Bounds of what one seat can get.
        zero_sum: Whether all that seats get sums to zero.
        layout: The name of the layout that it is told in.

    Attributes:
        layouts: All that there are, by name; `bare` only where it tells less than `plain`.

    Raises:
        BadGameParameters: It has no such layout.
        UnsupportedGame: The environment has actions without numbers, no fixed list of agents, or
            an observation that is too large to be written without `render`.
    """

    def __init__(
        self,
        *,
        make: Callable[[], Any],
        id: str,
        title: str | None = None,
        rules: str = "",
        render: Render | None = None,
        label: Label | None = None,
        hidden: bool = True,
        returns: tuple[float, float] = (-math.inf, math.inf),
        zero_sum: bool = False,
        layout: str = PLAIN.name,
    ) -> None:
        layouts = (PLAIN,) if hidden and not rules else (PLAIN, BARE)
        self.id = id
        self.layouts = {each.name: each for each in layouts}
        self.layout = find_layout(id, layout, self.layouts)
        self._make = make
        self._render = render
        self.label: Label = label or (lambda agent, number: f"action {number}")
        env = make()
        self.agents: Sequence[str] = tuple(getattr(env, "possible_agents", ()))
        sizes = [getattr(env.action_space(agent), "n", None) for agent in self.agents]
        if not 1 <= len(sizes) <= MAX_SEATS or None in sizes:
            raise UnsupportedGame(
                f"{id}: {len(sizes)} agents with {sizes} actions; a match needs 1 to {MAX_SEATS}"
                " agents that are known from the start, and numbered actions"
            )
        name = title or str(env.metadata.get("name", id))
        above = f"{rules.strip()}\n" if rules else ""
        self._header = self.layout.rules.format(title=name.upper(), rules=above)
        seats = len(sizes)
        self.facts = GameFacts(
            id=id if layout == PLAIN.name else laid_out(id, [layout]),
            title=name,
            rules_version=1,
            layout_version=self.layout.version,
            min_seats=seats,
            max_seats=seats,
            max_options=max(int(size) for size in sizes if size is not None),
            max_turns=None,
            chance=False,
            hidden=hidden,
            min_return=returns[0],
            max_return=returns[1],
            zero_sum=zero_sum,
        )
        self.again(0, ())  # a text that cannot be written is said now, not in the first match

    def start(self, *, seats: int, seed: int) -> PettingZooState:
        """Give the first state; the environment is reset with the seed.

        Raises:
            BadGameParameters: The environment has another number of agents.
        """
        if seats != self.facts.min_seats:
            raise BadGameParameters(
                f"{self.facts.id} has {self.facts.min_seats} seats, not {seats}"
            )
        env, seen = self._reset(seed)
        return PettingZooState(self, env, seen, seed=seed, public=self._header)

    def told(self, agent: str, action: str) -> str:
        """Give the line that the public text gains by a turn."""
        return "" if self.facts.hidden else self.layout.turn("act", agent=agent, action=action)

    def again(self, seed: int, trail: Sequence[int]) -> Any:
        """Give an environment in which these actions were taken."""
        env, seen = self._reset(seed)
        for number in trail:
            seen = self.step(env, number, seen)
        return env

    def step(self, env: Any, number: int, before: Seen) -> Seen:
        """Take an action, and the empty steps of agents that are done."""
        env.step(number)
        rewards = [float(env.rewards.get(agent, 0.0)) for agent in self.agents]
        returns = tuple(map(sum, zip(before.returns, rewards, strict=True)))
        while env.agents and self._done(env, env.agent_selection):
            env.step(None)
        return self._look(env, returns, before.texts)

    def _reset(self, seed: int) -> tuple[Any, Seen]:
        env = self._make()
        env.reset(seed=seed % SEED_BELOW)
        nothing = (0.0,) * len(self.agents)
        return env, self._look(env, nothing, ("",) * len(self.agents))

    def _look(self, env: Any, returns: tuple[float, ...], before: tuple[str, ...]) -> Seen:
        texts = tuple(
            self._text(env, agent) if agent in env.agents else old
            for agent, old in zip(self.agents, before, strict=True)
        )
        if not env.agents:
            return Seen(None, (), texts, returns)
        agent = env.agent_selection
        return Seen(self.agents.index(agent), self._legal(env, agent), texts, returns)

    def _legal(self, env: Any, agent: str) -> tuple[int, ...]:
        observed = env.observe(agent)
        mask = observed.get("action_mask") if isinstance(observed, dict) else None
        if mask is None:
            mask = env.infos[agent].get("action_mask")
        if mask is None:
            return tuple(range(int(env.action_space(agent).n)))
        return tuple(number for number, allowed in enumerate(mask) if allowed)

    def _text(self, env: Any, agent: str) -> str:
        if self._render is not None:
            return self._render(env, agent)
        observed = env.observe(agent)
        if isinstance(observed, dict) and "observation" in observed:
            observed = observed["observation"]
        text = text_of(observed)
        if text is None:
            raise UnsupportedGame(
                f"{env.metadata.get('name', 'the environment')}: its observation is too large, or"
                " no array, and has no text; make a PettingZooGame with `render`"
            )
        return text

    @staticmethod
    def _done(env: Any, agent: str) -> bool:
        return bool(env.terminations[agent] or env.truncations[agent])


def load(text: str, layout: str = PLAIN.name) -> PettingZooGame:
    """Give an environment of PettingZoo's registry.

    Args:
        text: As the registry names it, with parameters: `classic/go-v5(board_size=9)`.
        layout: The name of the layout that it is told in.

    Raises:
        UnknownGame: The registry has no such environment.
        BadGameParameters: It does not take these parameters, or has no such layout.
        UnsupportedGame: PettingZoo, or what the environment needs, is not installed.
    """
    try:
        import pettingzoo
        from pettingzoo.env_registry.exceptions import NameNotFound
    except ImportError as error:
        raise UnsupportedGame(
            f"pettingzoo:{text} needs PettingZoo; install it with"
            " pip install 'ostinato[pettingzoo]'"
        ) from error
    id = f"pettingzoo:{text}"
    name, parameters = _split(id, text)

    def make() -> Any:
        return pettingzoo.make("aec", name, **parameters)

    try:
        make()
    except NameNotFound as error:
        known = sorted(each for each in pettingzoo.aec_registry if each.startswith("classic"))
        raise UnknownGame(f"PettingZoo has no {name!r}; it has {', '.join(known)} ...") from error
    except TypeError as error:
        raise BadGameParameters(f"{id}: {error}") from error
    except Exception as error:  # each environment has its own way to say that something is missing
        raise UnsupportedGame(f"{id}: {' '.join(str(error).split())}") from error
    return PettingZooGame(make=make, id=id, hidden=name not in OPEN, layout=layout)


def _split(id: str, text: str) -> tuple[str, dict[str, Any]]:
    name, bracket, rest = text.partition("(")
    if bracket and not rest.endswith(")"):
        raise BadGameParameters(f"{id}: write NAME or NAME(key=value,...)")
    parameters: dict[str, Any] = {}
    for item in filter(None, rest.removesuffix(")").split(",")):
        key, equals, value = item.strip().partition("=")
        if not equals or not key.isidentifier():
            raise BadGameParameters(f"{id}: {item!r} is not key=value")
        try:
            parameters[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parameters[key] = value
    return name, parameters
