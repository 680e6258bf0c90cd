"""No-limit hold'em, one hand a match, on pokerkit: two to six seats, side pots, antes, straddles.

Seat 0 posts the small blind and seat 1 the big one; with two seats, seat 1 has the button. Every
card is a chance turn. Any whole number of chips may be bet in principle; which amounts are offered
is a parameter, because a question has to name its options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from games.adapters.holdem_text import (
    LAYOUTS,
    PLAIN,
    call_option,
    offer,
    private_text,
    raise_option,
    told,
)
from games.adapters.poker_table import (
    DECK,
    Stakes,
    act,
    deal,
    next_to_be_dealt,
    raises,
    redealt,
    set_up,
    undealt,
)
from games.base import CHANCE, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction, UnsupportedGame
from games.layouts import Layout, find_layout
from games.questions import Option, Question, choice, noul, score

if TYPE_CHECKING:
    from pokerkit import State

SEATS = range(2, 7)
PARAMETERS = ("ante", "bet", "blinds", "layout", "sizes", "stack")
SIZES = ("min", "50%", "100%", "200%", "all-in")
OUTCOMES = {card: Outcome(card) for card in DECK}
LEVELS = (
    "Put in nothing more.",
    "The smallest bet or raise.",
    "About half the pot.",
    "About the pot.",
    "Much more than the pot.",
    "Everything.",
)


class HoldemState:
    """A hand under way."""

    __slots__ = ("_game", "_options", "_public", "_table", "_trail")

    def __init__(self, game: Holdem, table: State, *, public: str, trail: str = "") -> None:
        self._game = game
        self._table = table
        self._public = public
        self._trail = trail
        self._options: tuple[Option, ...] | None = None

    @property
    def table(self) -> State:
        """The hand as pokerkit has it, to be looked at only."""
        return self._table

    @property
    def stakes(self) -> Stakes:
        """What is played for."""
        return self._game.stakes

    @property
    def actor(self) -> int | None:
        """Chance deals a card where one is due; then the players act in turn."""
        if not self._table.status:
            return None
        return CHANCE if next_to_be_dealt(self._table) is not None else self._table.actor_index

    def options(self) -> tuple[Option, ...]:
        """Give fold, check or call, and the sizes of a bet or raise that are offered."""
        if self.actor is None or self.actor == CHANCE:
            return ()
        if self._options is None:
            self._options = self._legal()
        return self._options

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give the cards that are still in the deck."""
        if self.actor != CHANCE:
            return ()
        return tuple(OUTCOMES[card] for card in undealt(self._table))

    def apply(self, action: str) -> HoldemState:
        """Deal a card, or act; raises IllegalAction."""
        legal = tuple(each.id for each in self.options() or self.outcomes())
        if action not in legal:
            raise IllegalAction(action, legal)
        if self.actor == CHANCE:
            table = deal(self._table, action)
        else:
            amount = action.rpartition(" ")[2]
            kind = action.partition(" ")[0]
            table = act(self._table, kind, int(amount) if amount.isdecimal() else 0)
        public = self._public + told(table, len(self._table.operations), self._game.layout)
        return HoldemState(self._game, table, public=public, trail=f"{self._trail}{action};")

    def view(self, seat: int) -> View:
        """Rules and what was done for all, then the own cards, the board, pots and stacks."""
        return View(self._public, private_text(self._table, seat))

    def resample(self, seat: int, draw: Callable[[int], float]) -> HoldemState | None:
        """Deal other cards to the other players, those excepted that lie open."""
        if self.actor is None:
            return self  # what the cards were has been decided
        table, became = redealt(self._table, seat, draw)
        trail = ";".join(became.get(action, action) for action in self._trail.split(";"))
        return HoldemState(self._game, table, public=self._public, trail=trail)

    def questions(self) -> tuple[Question, ...]:
        """Ask for the action; how much the hand is worth putting in; whether the bettor bluffs."""
        options, actor = self.options(), self.actor
        if not options:
            return ()
        questions = [
            choice("action", f"What should player {actor} do now?", options),
            score("sizing", f"How much should player {actor} put into the pot now?", LEVELS),
        ]
        bettor = self._bettor()
        if bettor is not None:
            text = f"Is player {bettor} bluffing: is the hand behind the last bet a weak one?"
            questions.append(noul("bluff", text))
        return tuple(questions)

    def returns(self) -> tuple[float, ...]:
        """Give the chips won or lost; what is still in the pot is nobody's yet."""
        return tuple(map(float, self._table.payoffs))

    def encode(self) -> bytes:
        """Give the game, the seats, all cards and actions so far, and who is to act."""
        seats = self._table.player_count
        return f"{self._game.facts.id} {seats} {self._trail} {self.actor}".encode()

    def rebase(self) -> HoldemState:
        """One hand never outgrows a window."""
        return self

    def _legal(self) -> tuple[Option, ...]:
        table, layout, options = self._table, self._game.layout, list[Option]()
        if table.can_fold():
            options.append(Option("fold", layout.describe(["fold"])))
        options.append(call_option(table, layout))
        amounts = raises(table)
        if amounts:
            wanted = (offer(table, size) for size in self._game.sizes)
            chosen = {max(amounts[0], min(amounts[-1], amount)) for amount in wanted}
            options += (raise_option(table, amount, layout) for amount in sorted(chosen))
        return tuple(options)

    def _bettor(self) -> int | None:
        """Give the seat whose bet is to be answered, blinds not counted."""
        from pokerkit import BoardDealing, CompletionBettingOrRaisingTo

        for operation in reversed(self._table.operations):
            if isinstance(operation, CompletionBettingOrRaisingTo):
                return operation.player_index
            if isinstance(operation, BoardDealing):
                break
        return None


class Holdem:
    """The rules.

    Attributes:
        stakes: What is played for.
        sizes: Which amounts are offered: `min`, `all-in`, a part of the pot such as `50%`, or a
            number of chips to raise to.
    """

    layouts = LAYOUTS

    def __init__(
        self, *, id: str, stakes: Stakes, sizes: tuple[str, ...], layout: Layout = PLAIN
    ) -> None:
        self.layout = layout
        self.stakes = stakes
        self.sizes = sizes
        given = [len(each) for each in (stakes.stacks, stakes.antes) if len(each) > 1]
        fewest, most = (given[0], given[0]) if given else (max(2, len(stakes.blinds)), SEATS[-1])
        stacks = stakes.stacks if given and len(stakes.stacks) > 1 else stakes.stacks * most
        self.facts = GameFacts(
            id=id,
            title="No-limit Texas hold'em",
            rules_version=1,
            layout_version=layout.version,
            min_seats=fewest,
            max_seats=most,
            max_options=max(len(DECK), 2 + len(sizes)),
            max_turns=None,
            chance=True,
            hidden=True,
            min_return=-float(max(stacks)),
            max_return=float(sum(stacks) - min(stacks)),
            zero_sum=True,
        )

    def start(self, *, seats: int, seed: int) -> HoldemState:
        """Give the table with the blinds posted; nothing depends on the seed.

        Raises:
            BadGameParameters: It is not for so many seats, or cannot be played with these stakes.
        """
        facts = self.facts
        if not facts.min_seats <= seats <= facts.max_seats:
            raise BadGameParameters(
                f"{facts.id} has {facts.min_seats} to {facts.max_seats} seats, not {seats}"
            )
        try:
            table = set_up(self.stakes, seats)
        except ValueError as error:
            raise BadGameParameters(f"{facts.id}: {error}") from error
        return HoldemState(self, table, public=self.layout.rules + told(table, 0, self.layout))


def load(**parameters: str) -> Holdem:
    """Make the game.

    Args:
        parameters: `stack=200`, `blinds=1/2`, `ante=0`, `bet=2` (the smallest; by default the big
            blind), `sizes=min/50%/100%/200%/all-in`. Stacks and antes of single seats are
            separated by `/`, as blinds are. `layout=bare` says nothing of what an action costs.

    Raises:
        BadGameParameters: One is unknown, or no number of chips.
        UnsupportedGame: pokerkit is not installed.
    """
    try:
        import pokerkit  # noqa: F401  what is missing is said here, not in the first match
    except ImportError as error:
        raise UnsupportedGame(
            "holdem needs pokerkit; install it with pip install 'ostinato[poker]'"
        ) from error
    unknown = sorted(set(parameters) - set(PARAMETERS))
    if unknown:
        raise BadGameParameters(f"holdem takes {', '.join(PARAMETERS)}, not {', '.join(unknown)}")
    sizes = tuple(parameters.get("sizes", "/".join(SIZES)).split("/"))
    for size in sizes:
        if size not in ("min", "all-in") and not size.removesuffix("%").isdecimal():
            raise BadGameParameters(f"holdem: sizes={size!r} is not min, all-in, 50% or a number")
    blinds = _chips(parameters, "blinds", "1/2", least=1)
    bet = _chips(parameters, "bet", str(blinds[min(1, len(blinds) - 1)]), least=1)
    if len(bet) != 1:
        raise BadGameParameters(f"holdem: bet={parameters['bet']} is one number, the smallest bet")
    stakes = Stakes(
        _chips(parameters, "stack", "200", least=1),
        blinds,
        _chips(parameters, "ante", "0", least=0),
        bet[0],
    )
    _require_fit(stakes)
    layout = find_layout("holdem", parameters.pop("layout", PLAIN.name), LAYOUTS)
    if layout.name != PLAIN.name:
        parameters["layout"] = layout.name
    listed = ",".join(f"{key}={parameters[key]}" for key in sorted(parameters))
    id = f"holdem({listed})" if listed else "holdem"
    return Holdem(id=id, stakes=stakes, sizes=sizes, layout=layout)


def _require_fit(stakes: Stakes) -> None:
    counts = {len(each) for each in (stakes.stacks, stakes.antes) if len(each) > 1}
    most = min(counts, default=SEATS[-1])
    if len(counts) > 1 or most > SEATS[-1] or len(stakes.blinds) > most:
        raise BadGameParameters(
            f"holdem: {len(stakes.stacks)} stacks, {len(stakes.antes)} antes and"
            f" {len(stakes.blinds)} blinds do not fit 2 to {SEATS[-1]} seats; give one for all, or"
            " one for each"
        )


def _chips(parameters: dict[str, str], name: str, default: str, *, least: int) -> tuple[int, ...]:
    values = parameters.get(name, default).split("/")
    if not all(value.isascii() and value.isdecimal() and int(value) >= least for value in values):
        raise BadGameParameters(
            f"holdem: {name}={'/'.join(values)} is not whole numbers of chips from {least},"
            " separated by /"
        )
    return tuple(map(int, values))
