"""Signs, while matches run, that an agent is not getting on: each is counted and said in the log.

stuck        The seat had the same options, saw the same and did the same, `TIMES` times running.
oscillating  The same of a cycle of two to `LONGEST` such turns, gone through `TIMES` times.
stale        An answer came for a decision that no longer waited for it.
fallback     The match's fallback took the turn.

What a seat sees is compared by its private text, which holds what changes from turn to turn; the
public text only grows. A game without private text is compared by its state. Turns that gave no
choice say nothing about an agent and are left out. A sign is no error: nothing follows from it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec

from games.base import State
from runtime.fold import Fold
from runtime.requests import match_of
from store.errors import StoreError
from store.events import AnswerDiscarded, DecisionRequested, Event, TurnTaken
from store.log import EventLog

TIMES = 3
LONGEST = 4
KEPT = 1000
"""Of how many matches the signals are kept one by one; agents have their sums over all."""

Kind = Literal["stuck", "oscillating", "stale", "fallback"]

logger = logging.getLogger(__name__)


class AgentSignals(msgspec.Struct, frozen=True, kw_only=True):
    """How often each sign was seen of one agent; `matches` counts those with any."""

    agent: str
    matches: int = 0
    stuck: int = 0
    oscillating: int = 0
    stale: int = 0
    fallback: int = 0


class SeatSignals(msgspec.Struct, frozen=True, kw_only=True):
    """How often each sign was seen of one seat in one match."""

    match: str
    seat: int
    agent: str
    stuck: int = 0
    oscillating: int = 0
    stale: int = 0
    fallback: int = 0


class SignalReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in a run; agents and matches without any sign are not listed.

    Attributes:
        left_out: How many matches have signs and are not among `matches`.
    """

    agents: tuple[AgentSignals, ...] = ()
    matches: tuple[SeatSignals, ...] = ()
    left_out: int = 0


class Signals:
    """The signs of all matches of a run."""

    def __init__(self, *, say: bool = True) -> None:
        """Count from zero; `say` whether each is a log line too."""
        self._say = say
        self.totals: Counter[Kind] = Counter()
        self._agents: dict[str, Counter[str]] = {}
        self._seats: dict[tuple[str, int], tuple[str, Counter[str]]] = {}
        self._matches: set[str] = set()
        self._left_out = 0

    def add(
        self,
        kind: Kind,
        match: str,
        seat: int,
        agent: str,
        *,
        first: bool | None = None,
        **told: object,
    ) -> None:
        """Count one sign and say it; the more there were of an agent, the more rarely.

        Args:
            kind: What was seen.
            match: Where.
            seat: Of whom.
            agent: Who sits there.
            first: Whether it is the seat's first sign in this match; None where nobody watches it.
            told: What else the log line says.
        """
        first = (match, seat) not in self._seats if first is None else first
        self.totals[kind] += 1
        sums = self._agents.setdefault(agent, Counter())
        sums[kind] += 1
        sums["matches"] += first
        if match in self._matches or len(self._matches) < KEPT:
            self._matches.add(match)
            self._seats.setdefault((match, seat), (agent, Counter()))[1][kind] += 1
        elif first:
            self._left_out += 1
        if not self._say:
            return
        times = sums[kind]
        rare = times & (times - 1) == 0  # a power of two
        extra = {"match": match, "seat": seat, "agent": agent, "times": times, **told}
        logger.log(logging.WARNING if rare else logging.DEBUG, "agent: %s", kind, extra=extra)

    def report(self) -> SignalReport:
        """Give what was seen until now."""
        return SignalReport(
            agents=tuple(
                AgentSignals(agent=agent, **sums) for agent, sums in sorted(self._agents.items())
            ),
            matches=tuple(
                SeatSignals(match=match, seat=seat, agent=agent, **sums)
                for (match, seat), (agent, sums) in sorted(self._seats.items())
            ),
            left_out=self._left_out,
        )


class Watch:
    """Looks at the events of one match as they are recorded."""

    def __init__(
        self, signals: Signals, log: EventLog, fold: Fold, names: Sequence[str] | None = None
    ) -> None:
        """Begin where a match is.

        Args:
            signals: Where they are counted.
            log: What the match is recorded in.
            fold: The match so far.
            names: What to call the agents; default: as the match names them.
        """
        self._signals = signals
        self._log = log
        self._match = fold.match
        self._names = tuple(names or fold.started.seats)
        self._habits = [_Habit() for _ in self._names]
        self._seen: set[int] = set()

    def see(self, fold: Fold, event: Event) -> None:
        """Take one event and the match before it."""
        match event:
            case TurnTaken(how="agent" | "decision", seat=seat):
                kind = self._habits[seat].add(_Step(fold.state, event))
                if kind is not None:
                    self._add(kind, seat, version=fold.next_version, action=event.action)
            case TurnTaken(how="fallback", seat=seat):
                self._add("fallback", seat, version=fold.next_version, why=event.note)
            case AnswerDiscarded(reason="late"):
                seat = seat_of(self._log, event.decision)
                if seat is not None:
                    self._add("stale", seat, decision=event.decision)
            case _:
                pass

    def _add(self, kind: Kind, seat: int, **told: object) -> None:
        first = seat not in self._seen
        self._seen.add(seat)
        self._signals.add(kind, self._match, seat, self._names[seat], first=first, **told)


class _Step:
    """One turn. What its seat saw is only looked at where its action came before."""

    def __init__(self, state: State, event: TurnTaken) -> None:
        self._state = state
        self._seat = event.seat
        self._action = event.action

    @cached_property
    def _situation(self) -> tuple[tuple[str, ...], str | bytes]:
        labels = tuple(option.id for option in self._state.options())
        return labels, self._state.view(self._seat).private or self._state.encode()

    def repeats(self, earlier: _Step) -> bool:
        """Whether the same was offered, seen and done before."""
        return self._action == earlier._action and self._situation == earlier._situation


class _Habit:
    """The last turns of one seat, and for how long they repeat those before them."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=LONGEST)
        self._repeats = [0] * LONGEST  # turns running that equal the one so many turns earlier

    def add(self, step: _Step) -> Kind | None:
        """Take a turn; say what it makes whole, once for as long as it goes on."""
        found: Kind | None = None
        cycling = False
        for period in range(1, LONGEST + 1):
            same = len(self._steps) >= period and step.repeats(self._steps[-period])
            repeats = self._repeats[period - 1] = self._repeats[period - 1] + 1 if same else 0
            due = period * (TIMES - 1)
            if repeats >= due and not cycling:
                cycling = True  # a longer cycle is the same one again
                if repeats == due:
                    found = "stuck" if period == 1 else "oscillating"
        self._steps.append(step)
        return found


def seat_of(log: EventLog, decision: str) -> int | None:
    """Give the seat that asked for a decision, as the log has it; None where it has not."""
    version = decision.rpartition("-")[2]
    if not version.isdecimal():
        return None
    try:
        recorded = log.read(match_of(decision), start=int(version), stop=int(version) + 1)
    except StoreError:
        return None
    event = recorded[0].event if recorded else None
    return event.seat if isinstance(event, DecisionRequested) else None
