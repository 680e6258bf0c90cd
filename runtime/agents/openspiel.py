"""OpenSpiel's own bots, for OpenSpiel's games."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from games.base import Game
from games.layouts import MixedState
from runtime.agents.base import Act, Agent, Turn, require_worlds
from runtime.errors import AgentFailed, CannotPlay, UnknownAgent

if TYPE_CHECKING:
    import pyspiel

_SEARCHES: Final = ("mcts", "ismcts")
_SEEDS: Final = 2**31
_EXPLORE: Final = 2.0  # what OpenSpiel's own examples take
_MEMORY_MB: Final = 256


class BotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `openspiel:BOT,NAME=VALUE,...` can say.

    Attributes:
        simulations: Of a turn, for the bots that search.
    """

    simulations: Annotated[int, msgspec.Meta(ge=1)] = 200


class OpenSpielAgent(Agent):
    """`openspiel:BOT`: `mcts`, `ismcts`, or a bot that OpenSpiel registers by name.

    Every turn has a bot of its own with a seed from the match's, so that a match which is resumed
    goes on as it would have. Where a game hides something the bot is shown a state that its seat
    cannot tell from the real one.
    """

    def __init__(self, name: str, settings: BotSettings) -> None:
        """Take a bot's name; raises UnknownAgent if OpenSpiel has none of it, or is missing."""
        try:
            import pyspiel
        except ImportError as error:
            raise UnknownAgent(
                "openspiel needs OpenSpiel; install it with pip install 'ostinato[openspiel]'"
            ) from error
        names = sorted({*_SEARCHES, *pyspiel.registered_bots()})
        if name not in names:
            raise UnknownAgent(f"openspiel: no bot {name!r}; there are {', '.join(names)}")
        self._name = name
        self._simulations = settings.simulations

    def check(self, game: Game) -> None:
        """Refuse games that are not OpenSpiel's, and those that hide what cannot be drawn anew."""
        if not game.facts.id.startswith("openspiel:"):
            raise CannotPlay(
                f"bots of OpenSpiel play OpenSpiel's games, and {game.facts.id} is none; take"
                " openspiel:NAME as the game, or another agent"
            )
        require_worlds(game)

    async def act(self, turn: Turn) -> Act:
        """Let the bot take a step."""
        from games.adapters.openspiel import OpenSpielState

        draw = turn.draw()
        world = turn.world()
        if isinstance(world, MixedState):
            world = world.acting
        if not isinstance(world, OpenSpielState):
            raise AgentFailed(f"{turn.facts.id} is no game of OpenSpiel")
        position = world.position()
        bot = self._bot(position.get_game(), turn.seat, int(draw * _SEEDS))
        bot.restart_at(position)
        return Act(world.label_of(bot.step(position)), draw)

    def _bot(self, game: pyspiel.Game, seat: int, seed: int) -> pyspiel.Bot:
        import pyspiel

        if self._name == "uniform_random":
            return pyspiel.make_uniform_random_bot(seat, seed)
        if self._name not in _SEARCHES:
            return pyspiel.load_bot(self._name, game, seat)
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        if self._name == "mcts":
            return pyspiel.MCTSBot(
                game, evaluator, _EXPLORE, self._simulations, _MEMORY_MB, False, seed, False
            )
        return pyspiel.ISMCTSBot(seed, evaluator, _EXPLORE, self._simulations)
