"""Every OpenSpiel game that the protocol can hold; `docs/openspiel.md` has the table.

A game whose players act at the same time is played in turns, by OpenSpiel's own transform: each
chooses without seeing what the others chose.

What a seat sees is what OpenSpiel gives it. Of a game of perfect information every turn is public
text, a line for each, and the private text is the position. Of any other game a turn is public only
as far as OpenSpiel's public observation tells it; the private text is the seat's own information
state. Where OpenSpiel gives no public observation, nothing but the header is public.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from games.adapters.chess_text import SIDES, picture
from games.adapters.openspiel_load import find_game, in_turns
from games.adapters.openspiel_text import PLAIN, layouts_of, option
from games.base import CHANCE, MAX_OPTIONS, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.layouts import find_layout, laid_out
from games.questions import Option, Question, choice

if TYPE_CHECKING:
    import pyspiel

FACTORS = ("row", "column")

# Where a game numbers its actions far beyond what a position can have. Chess: 218 moves, found by
# N. Petrovic in 1964, the most that any reachable position has.
_MOST_OPTIONS = {"chess": 218}

# Where OpenSpiel's text of what a player knows leaves out what its legal actions depend on, such as
# the bids so far, the legal actions are told too.
_TELLS_LESS = frozenset({"dou_dizhu", "gin_rummy"})

# Where what OpenSpiel draws for a search depends on nothing that the seat cannot see. Most games
# draw nothing; blackjack leaves the dealer's card as it is, hearts and gin_rummy cards of others.
_RESAMPLES = frozenset({"kuhn_poker", "leduc_poker", "universal_poker"})

_CELL = re.compile(r"(?:\w )?(?P<column>[a-z])(?P<row>\d+)")
_PLACE = re.compile(r"\w?\(?(?P<row>\d+),(?P<column>\d+)\)?")


class OpenSpielState:
    """A position with the turns that led to it."""

    __slots__ = ("_game", "_labels", "_options", "_public", "_state", "_trail")

    def __init__(
        self, game: OpenSpielGame, state: pyspiel.State, *, public: str, trail: str = ""
    ) -> None:
        self._game = game
        self._state = state
        self._public = public
        self._trail = trail
        self._labels: dict[str, int] | None = None
        self._options: tuple[Option, ...] | None = None

    @property
    def actor(self) -> int | None:
        """The seat to act, `CHANCE`, or None at the end."""
        return None if self._state.is_terminal() else self._state.current_player()

    @property
    def inner(self) -> pyspiel.State:
        """OpenSpiel's own state, to be looked at only."""
        return self._state

    def options(self) -> tuple[Option, ...]:
        """Give the legal actions in OpenSpiel's order, named as OpenSpiel names them."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        if self._options is None:
            layout = self._game.layout
            options = (option(layout, self._state, *each) for each in self._legal().items())
            if self._game.facts.factors:
                options = (Option(one.id, one.description, parts(one.id)) for one in options)
            self._options = tuple(options)
        return self._options

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

    def resample(self, seat: int, draw: Callable[[int], float]) -> OpenSpielState | None:
        """Let OpenSpiel draw anew what a seat cannot see, in the games for which it can."""
        if not self._game.resamples:
            return None
        numbers = count()
        state = self._state.resample_from_infostate(seat, lambda: draw(next(numbers)))
        trail = "".join(f"{number}," for number in state.history())
        sample = OpenSpielState(self._game, state, public=self._public, trail=trail)
        same = sample.view(seat) == self.view(seat) and sample.options() == self.options()
        return sample if same else None

    def position(self) -> pyspiel.State:
        """Give OpenSpiel's own state, a copy."""
        return self._state.clone()

    def label_of(self, number: int) -> str:
        """Name an action as the options do; raises IllegalAction for one that is not legal."""
        legal = self._legal()
        for label, each in legal.items():
            if each == number:
                return label
        raise IllegalAction(str(number), tuple(legal))

    def view(self, seat: int) -> View:
        """Give the public turns, then what OpenSpiel shows to this seat."""
        name, seen = self._game.called(seat), self._game.seen(self._state, seat)
        if self._game.tells_less and seat == self.actor:
            seen = f"{seen}\nLegal now: {'; '.join(self._legal())}"
        return View(self._public, f"\nYou are {name}.\n{seen}\n")

    def questions(self) -> tuple[Question, ...]:
        """Ask for an action."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        text = f"What should {self._game.called(self.actor)} do now?"
        return (choice("action", text, self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Give the payoffs."""
        return tuple(map(float, self._state.returns()))

    def encode(self) -> bytes:
        """Give the game, the numbers of all actions and outcomes so far, and who is to act."""
        return f"{self._game.id} {self._trail} {self.actor}".encode()

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
    """The rules of one OpenSpiel game.

    Attributes:
        id: The game's, whatever the layout.
        layout: The one that it is told in.
        layouts: All that there are, by name.
    """

    def __init__(
        self, game: pyspiel.Game, *, id: str, start: str | None = None, layout: str = PLAIN.name
    ) -> None:
        """Take a game that `load` has accepted, and the position in which its matches start.

        Raises:
            BadGameParameters: It has no such layout.
        """
        import pyspiel

        self.id = id
        self._name = str(game)
        self._game = in_turns(game)
        self._simultaneous = self._game is not game
        kind = self._game.get_type()
        self._start = start
        self._chess = kind.short_name == "chess"
        self.resamples = kind.short_name in _RESAMPLES
        self.tells_less = kind.short_name in _TELLS_LESS
        self._perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        self._recalls = kind.provides_information_state_string and not self._perfect
        self._observes = kind.provides_observation_string
        self._announced = None if self._perfect else _public_observation(self._game)
        self.layouts = layouts_of(perfect=self._perfect)
        self.layout = find_layout(id, layout, self.layouts)
        self.facts = _facts(
            self._game,
            id=id if layout == PLAIN.name else laid_out(id, [layout]),
            hidden=not self._perfect,
            layout_version=self.layout.version,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_announced": None}  # what makes it text cannot be pickled

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)
        self._announced = None if self._perfect else _public_observation(self._game)

    def start(self, *, seats: int, seed: int) -> OpenSpielState:
        """Give the first state; nothing depends on the seed.

        Raises:
            BadGameParameters: The game has another number of seats.
        """
        facts = self.facts
        if seats != facts.min_seats:
            raise BadGameParameters(f"{facts.id} has {facts.min_seats} seats, not {seats}")
        start = () if self._start is None else (self._start,)
        return OpenSpielState(self, self._game.new_initial_state(*start), public=self._header())

    def told(self, actor: int | None, label: str, after: pyspiel.State) -> str:
        """Give the line that the public text gains by a turn."""
        if self._perfect:
            return self.layout.turn("act", who=self.called(actor).capitalize(), action=label)
        if self._announced is None:
            return ""
        public = self._announced.string_from(after, 0)
        # One of several lines pictures the table, and each seat's own string has it too.
        return "" if "\n" in public else self.layout.turn("announce", public=public)

    def seen(self, state: pyspiel.State, seat: int) -> str:
        """Give OpenSpiel's text of what a seat knows."""
        if self._recalls:
            return state.information_state_string(seat).strip("\n")
        if self._chess:
            return picture(str(state))
        if self._observes:
            return state.observation_string(seat).strip("\n")
        return str(state).strip("\n")

    def called(self, actor: int | None) -> str:
        """Name who acts as the text does."""
        if actor is None or actor == CHANCE:
            return "chance"
        return SIDES[actor] if self._chess else f"player {actor}"

    def _header(self) -> str:
        facts, shared = self.facts, ""
        if self._simultaneous:
            shared = (
                "All act at the same time: each chooses before the others' choices are known.\n"
            )
        if self._start is not None:
            shared = f"The match starts from {self._start}.\n"
        return self.layout.rules.format(
            title=facts.title.upper(),
            name=self._name,
            seats=facts.min_seats,
            low=facts.min_return,
            high=facts.max_return,
            sum="; all sum to 0" if facts.zero_sum else "",
            shared=shared,
        )


def load(text: str, layout: str = PLAIN.name) -> OpenSpielGame:
    """Give an OpenSpiel game.

    Args:
        text: As OpenSpiel writes it: `connect_four`, `go(board_size=9)`.
        layout: The name of the layout that it is told in.

    Raises:
        UnknownGame: OpenSpiel has no such game.
        BadGameParameters: The game does not take these parameters, or has no such layout.
        UnsupportedGame: OpenSpiel is not installed, or the game does not fit the protocol.
    """
    game, start = find_game(text)
    parameters = [f"fen={start}"] if start else []
    name, _, rest = str(game).removesuffix(")").partition("(")
    listed = ",".join(filter(None, (rest, *parameters)))
    id = f"openspiel:{name}({listed})" if listed else f"openspiel:{name}"
    try:
        return OpenSpielGame(game, id=id, start=start, layout=layout)
    except BadGameParameters:
        raise
    except Exception as error:  # the facts of a game may depend on impossible parameters
        raise BadGameParameters(f"{id} cannot start: {' '.join(str(error).split())}") from error


def parts(label: str) -> tuple[str, str]:
    """Give row and column of a label on a grid; any other label stands for both, such as a pass."""
    found = _CELL.fullmatch(label) or _PLACE.fullmatch(label)
    return (f"row {found['row']}", f"column {found['column']}") if found else (label, label)


def _facts(game: pyspiel.Game, *, id: str, hidden: bool, layout_version: int) -> GameFacts:
    import pyspiel

    kind = game.get_type()
    # Chess960 draws its first position and says that it is deterministic.
    chance = (
        kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC
        or game.new_initial_state().is_chance_node()
    )
    most = _MOST_OPTIONS.get(kind.short_name) or game.num_distinct_actions()
    return GameFacts(
        id=id,
        title=kind.long_name,
        rules_version=1,
        layout_version=layout_version + (kind.short_name in {"chess", *_TELLS_LESS}),
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
