"""The game: the rules with a journal around them."""

from __future__ import annotations

from typing import Final

import msgspec

from games.base import CHANCE, GameFacts, Outcome, View
from games.errors import BadGameParameters, IllegalAction
from games.expedition import narration, rules
from games.expedition.handbook import handbook
from games.expedition.layouts import LAYOUTS, PLAIN
from games.expedition.rulebook import rulebook
from games.expedition.rules import Situation
from games.expedition.tables import RULES
from games.expedition.world import Size, World, draw_world
from games.layouts import PARAMETER
from games.questions import Option, Question, choice, noul

SIZES: Final = {
    "tiny": Size(columns=3, rows=2, days=2),
    "small": Size(columns=6, rows=3, days=8),
    "standard": Size(columns=10, rows=3, days=16),
}
_BOOKS: Final = {"full": rulebook, "short": handbook}
_DEFAULTS: Final = {"rules": "full", "size": "standard", PARAMETER: PLAIN.name}

_WHICH_STEP = "Which step should the traveller take today, to have the most points in the end?"
_LOW = "Is the traveller's energy low, as the rules define it?"


class ExpeditionState(msgspec.Struct, frozen=True):
    """One point of a journey.

    Attributes:
        page: Rules and map, with which every public text starts.
        journal: What has happened since, a line for each turn.
        layout: The name of the layout that it is told in.
    """

    world: World
    situation: Situation
    page: str
    journal: str = ""
    epoch: int = 0
    layout: str = PLAIN.name

    @property
    def actor(self) -> int | None:
        """Seat 0 on its step, nobody at the end, chance on the other four turns of a day."""
        if self.situation.phase == "over":
            return None
        return 0 if self.situation.phase == "step" else CHANCE

    @property
    def energy_low(self) -> bool:
        """The truth about the second question."""
        return rules.energy_low(self.world.rules.measures, self.situation.energy)

    def options(self) -> tuple[Option, ...]:
        """Give the six steps, or nothing when no step is to be chosen."""
        if self.actor != 0:
            return ()
        return narration.step_options(LAYOUTS[self.layout], self.world, self.situation)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Give what chance may bring; a weight is a number of the die's faces."""
        chances = rules.happenings(self.world, self.situation)
        return tuple(Outcome(chance.name, float(chance.faces)) for chance in chances)

    def apply(self, action: str) -> ExpeditionState:
        """Give the state one turn later; raises IllegalAction."""
        legal = rules.actions(self.world, self.situation)
        if action not in legal:
            raise IllegalAction(action, legal)
        after = rules.advance(self.world, self.situation, action)
        line = narration.turn(LAYOUTS[self.layout], self.world, self.situation, action, after)
        return msgspec.structs.replace(self, situation=after, journal=self.journal + line)

    def view(self, seat: int) -> View:
        """Give rules, map and journal, and after them the facts of the moment."""
        return View(
            self.page + self.journal,
            narration.present(self.world, self.situation),
            self.epoch,
        )

    def questions(self) -> tuple[Question, ...]:
        """Ask for the step, and whether energy is low; nothing when no step is to be chosen."""
        if self.actor != 0:
            return ()
        return (choice("step", _WHICH_STEP, self.options()), noul("energy_low", _LOW))

    def truths(self) -> dict[str, str]:
        """Give the answer to the second question."""
        return {"energy_low": "true" if self.energy_low else "false"} if self.actor == 0 else {}

    def returns(self) -> tuple[float]:
        """Give the share of all points that a journey ending here has, from 0 to 1."""
        return (rules.share_of_points(self.world, self.situation),)

    def encode(self) -> bytes:
        """Give map, season, equipment and situation; how they are told does not matter."""
        world = self.world
        truth = {
            "columns": world.size.columns,
            "days": world.days,
            "kit": [item.name for item in world.kit],
            "land": [terrain.name for terrain in world.land],
            "season": world.season.name,
            "situation": self.situation,
        }
        return msgspec.json.encode(truth)

    def rebase(self) -> ExpeditionState:
        """Give the same state with one line instead of the journal."""
        line = narration.summary(LAYOUTS[self.layout], self.world, self.situation)
        return msgspec.structs.replace(self, journal=line, epoch=self.epoch + 1)


class Expedition:
    """The rules in one of two lengths, for maps of one size.

    Attributes:
        layout: The one that it is told in.
        layouts: All that there are, by name.
    """

    def __init__(self, *, book: str, size: str, layout: str) -> None:
        """Take the names of the book, the size and the layout."""
        self._size = SIZES[size]
        text = f"{_BOOKS[book](RULES)}\n"
        self.layouts = {
            name: msgspec.structs.replace(each, rules=text) for name, each in LAYOUTS.items()
        }
        self.layout = self.layouts[layout]
        chosen = {"rules": book, "size": size, PARAMETER: layout}
        others = [f"{key}={name}" for key, name in chosen.items() if name != _DEFAULTS[key]]
        self._facts = GameFacts(
            id=f"expedition({','.join(others)})" if others else "expedition",
            title="Expedition",
            rules_version=1,
            layout_version=self.layout.version,
            min_seats=1,
            max_seats=1,
            max_options=6,
            max_turns=self._size.days * 5,
            chance=True,
            hidden=False,
            min_return=0.0,
            max_return=1.0,
            zero_sum=False,
            overflow="rebase",
        )

    @property
    def facts(self) -> GameFacts:
        """What generic code needs to know."""
        return self._facts

    def start(self, *, seats: int, seed: int) -> ExpeditionState:
        """Give the first state, before the first day's weather, on the map of a seed.

        Raises:
            BadGameParameters: `seats` is not 1.
        """
        if seats != 1:
            raise BadGameParameters(f"expedition has 1 seat, not {seats}")
        world = draw_world(RULES, self._size, seed)
        page = self.layout.rules + narration.map_page(world)
        return ExpeditionState(world, rules.start(world), page, layout=self.layout.name)


def load(**parameters: str) -> Expedition:
    """Give the game.

    Args:
        **parameters: `rules`, `full` (the default) or `short`; `size`, one of `SIZES`;
            `layout`, one of `LAYOUTS`.

    Raises:
        BadGameParameters: A parameter or its value is unknown.
    """
    allowed = {"rules": tuple(_BOOKS), "size": tuple(SIZES), PARAMETER: tuple(LAYOUTS)}
    for name, value in parameters.items():
        if value not in allowed.get(name, ()):
            takes = ", ".join(f"{key}={'|'.join(values)}" for key, values in allowed.items())
            raise BadGameParameters(f"expedition takes {takes}; not {name}={value}")
    chosen = _DEFAULTS | parameters
    return Expedition(book=chosen["rules"], size=chosen["size"], layout=chosen[PARAMETER])
