"""Every turn-based OpenSpiel game.

What a seat sees is what OpenSpiel gives it. Of a game of perfect information every turn is public
text, a line for each, and the private text is the position. Of any other game a turn is public only
as far as OpenSpiel's public observation tells it; the private text is the seat's own information
state. Where OpenSpiel gives no public observation, nothing but the header is public.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from games.base import CHANCE, MAX_OPTIONS, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction, UnknownGame, UnsupportedGame
from games.questions import Option, Question, choice

if TYPE_CHECKING:
    import pyspiel

MAX_SEATS = 10
FACTORS = ("row", "column")

# Where a game numbers its actions far beyond what a position can have. Chess: 218 moves, found by
# N. Petrovic in 1964, the most that any reachable position has.
_MOST_OPTIONS = {"chess": 218}

# Its labels hold memory that was never written, and differ from match to match.
_UNREPEATABLE = frozenset({"morpion_solitaire"})

_CELL = re.compile(r"(?:\w )?(?P<column>[a-z])(?P<row>\d+)")
_PLACE = re.compile(r"\w?\(?(?P<row>\d+),(?P<column>\d+)\)?")


class OpenSpielState:
    """A position with the turns that led to it."""

    __slots__ = ("_game", "_labels", "_public", "_state", "_trail")

    def __init__(
        self, game: OpenSpielGame, state: pyspiel.State, *, public: str, trail: str = ""
    ) -> None:
        self._game = game
        self._state = state
        self._public = public
        self._trail = trail
        self._labels: dict[str, int] | None = None

    @property
    def actor(self) -> int | None:
        """The seat to act, `CHANCE`, or None at the end."""
        return None if self._state.is_terminal() else self._state.current_player()

    def options(self) -> tuple[Option, ...]:
        """Give the legal actions in OpenSpiel's order, named as OpenSpiel names them."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        if self._game.facts.factors:
            return tuple(Option(label, parts=parts(label)) for label in self._legal())
        return tuple(map(Option, self._legal()))

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give what chance may do, weighted by its probability."""
        if self.actor != CHANCE:
            return ()
        weights = dict(self._state.chance_outcomes())
        return tuple(Outcome(label, weights[action]) for label, action in self._legal().items())

    def apply(self, action: str) -> OpenSpielState:
        """Take an action, or an outcome of chance; raises IllegalAction."""
        legal = self._legal()
        number = legal.get(action)
        if number is None:
            raise IllegalAction(action, tuple(legal))
        state = self._state.child(number)
        return OpenSpielState(
            self._game,
            state,
            public=self._public + self._game.told(self.actor, action, state),
            trail=f"{self._trail}{number},",
        )

    def view(self, seat: int) -> View:
        """Give the public turns, then what OpenSpiel shows to this seat."""
        return View(
            self._public, f"\nYou are player {seat}.\n{self._game.seen(self._state, seat)}\n"
        )

    def questions(self) -> tuple[Question, ...]:
        """Ask for an action."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        return (choice("action", f"What should player {self.actor} do now?", self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Give the payoffs."""
        return tuple(self._state.returns())

    def encode(self) -> bytes:
        """Give the game, the numbers of all actions and outcomes so far, and who is to act."""
        return f"{self._game.facts.id} {self._trail} {self.actor}".encode()

    def rebase(self) -> OpenSpielState:
        """OpenSpiel tells no summary of a match."""
        return self

    def _legal(self) -> dict[str, int]:
        """Give the numbers of the legal actions, or of the outcomes, by label."""
        if self._labels is None:
            state = self._state
            self._labels = _labels(state, state.legal_actions())
        return self._labels


class OpenSpielGame:
    """The rules of one OpenSpiel game."""

    def __init__(self, game: pyspiel.Game) -> None:
        """Take a game that `load` has accepted."""
        import pyspiel

        kind = game.get_type()
        self._game = game
        self._perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        self._recalls = kind.provides_information_state_string and not self._perfect
        self._observes = kind.provides_observation_string
        self._announced = None if self._perfect else _public_observation(game)
        self.facts = _facts(game, hidden=not self._perfect)

    def start(self, *, seats: int, seed: int) -> OpenSpielState:
        """Give the first state; nothing depends on the seed.

        Raises:
            BadGameParameters: The game has another number of seats.
        """
        facts = self.facts
        if seats != facts.min_seats:
            raise BadGameParameters(f"{facts.id} has {facts.min_seats} seats, not {seats}")
        return OpenSpielState(self, self._game.new_initial_state(), public=self._header())

    def told(self, actor: int | None, label: str, after: pyspiel.State) -> str:
        """Give the line that the public text gains by a turn."""
        if self._perfect:
            return f"{'Chance' if actor == CHANCE else f'Player {actor}'}: {label}\n"
        if self._announced is None:
            return ""
        public = self._announced.string_from(after, 0)
        # One of several lines pictures the table, and each seat's own string has it too.
        return "" if "\n" in public else f"{public}\n"

    def seen(self, state: pyspiel.State, seat: int) -> str:
        """Give OpenSpiel's text of what a seat knows."""
        if self._recalls:
            return state.information_state_string(seat).strip("\n")
        if self._observes:
            return state.observation_string(seat).strip("\n")
        return str(state).strip("\n")

    def _header(self) -> str:
        facts = self.facts
        payoffs = f"A player's payoff is from {facts.min_return:g} to {facts.max_return:g}"
        return (
            f"{facts.title.upper()}\n"
            f"Rules, notation and the numbers of players are those of OpenSpiel's {self._game}.\n"
            f"Players: {facts.min_seats}. {payoffs}{'; all sum to 0' if facts.zero_sum else ''}.\n"
            "\nPLAY\n"
        )


def load(text: str) -> OpenSpielGame:
    """Give an OpenSpiel game.

    Args:
        text: As OpenSpiel writes it: `connect_four`, `go(board_size=9)`.

    Raises:
        UnknownGame: OpenSpiel has no such game.
        BadGameParameters: The game does not take these parameters.
        UnsupportedGame: OpenSpiel is not installed, or the game does not fit the protocol.
    """
    try:
        import pyspiel
    except ImportError as error:
        raise UnsupportedGame(
            f"openspiel:{text} needs OpenSpiel; install it with pip install 'ostinato[openspiel]'"
        ) from error
    name = text.partition("(")[0]
    names = pyspiel.registered_names()
    if name not in names:
        near = difflib.get_close_matches(name.lower(), names, n=3)
        hint = f"did you mean {' or '.join(near)}" if near else f"it has {len(names)} others"
        raise UnknownGame(f"OpenSpiel has no game {name!r}; {hint}")
    try:
        game = pyspiel.load_game(text)
    except pyspiel.SpielError as error:
        raise BadGameParameters(f"openspiel:{text}: {' '.join(str(error).split())}") from error
    reason = _unsupported(game)
    if reason:
        raise UnsupportedGame(f"openspiel:{text} cannot be played: {reason}")
    return OpenSpielGame(game)


def parts(label: str) -> tuple[str, str]:
    """Give row and column of a label on a grid; any other label stands for both, such as a pass."""
    found = _CELL.fullmatch(label) or _PLACE.fullmatch(label)
    return (f"row {found['row']}", f"column {found['column']}") if found else (label, label)


def _unsupported(game: pyspiel.Game) -> str | None:
    """Say why the protocol cannot hold a game."""
    import pyspiel

    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        return (
            "its players act at the same time;"
            f" openspiel:turn_based_simultaneous_game(game={game}) is the same in turns"
        )
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        return "it is a mean-field game, which has no match between seats"
    if kind.short_name in _UNREPEATABLE:
        return "its labels are not the same each time, so that a match could not be replayed"
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        return "it draws chance inside itself, so that a match could not be replayed"
    if game.num_players() > MAX_SEATS:
        return f"it has {game.num_players()} players, and a match has at most {MAX_SEATS}"
    if not game.num_distinct_actions():
        return "its actions have no numbers"
    perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    strings = kind.provides_information_state_string or kind.provides_observation_string
    if not perfect and not strings:
        return "OpenSpiel has no text of what a player knows"
    return None


def _facts(game: pyspiel.Game, *, hidden: bool) -> GameFacts:
    import pyspiel

    kind = game.get_type()
    chance = kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC
    most = _MOST_OPTIONS.get(kind.short_name) or game.num_distinct_actions()
    return GameFacts(
        id=f"openspiel:{str(game).removesuffix('()')}",
        title=kind.long_name,
        rules_version=1,
        layout_version=1,
        min_seats=game.num_players(),
        max_seats=game.num_players(),
        max_options=most,
        max_turns=game.max_history_length(),
        chance=chance,
        hidden=hidden,
        min_return=game.min_utility(),
        max_return=game.max_utility(),
        zero_sum=kind.utility == pyspiel.GameType.Utility.ZERO_SUM,
        factors=FACTORS if most > MAX_OPTIONS and _on_a_grid(game) else (),
    )


def _on_a_grid(game: pyspiel.Game) -> bool:
    """Whether the first labels name cells, all but one, which may be a pass."""
    state = game.new_initial_state()
    if state.is_chance_node():
        return False
    labels = _labels(state, state.legal_actions())
    return sum(parts(label)[0] == label for label in labels) <= 1


def _labels(state: pyspiel.State, actions: list[int]) -> dict[str, int]:
    """Name actions; where OpenSpiel gives several one name, their numbers tell them apart."""
    player = state.current_player()
    names = [" ".join(state.action_to_string(player, action).split()) for action in actions]
    count = Counter(names)
    return {
        name if name and count[name] == 1 else f"{name} (action {action})".strip(): action
        for name, action in zip(names, actions, strict=True)
    }


def _public_observation(game: pyspiel.Game) -> Any:
    """Give what makes OpenSpiel's public observation a string, or None where it has none."""
    import pyspiel

    kind = pyspiel.IIGObservationType(
        public_info=True, perfect_recall=False, private_info=pyspiel.PrivateInfoType.NONE
    )
    observer = game.make_observer(kind, {})
    if observer is None:  # wrapping it would end the process
        return None
    observation = pyspiel._Observation(game, observer)
    return observation if observation.has_string() else None
