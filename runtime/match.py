"""Plays one match, with the log as its outbox.

Nothing leaves the process before what it follows from is durable: a request is appended before it
is sent, an answer together with the turn that it led to. What the rules alone decide (chance,
forced actions, the end) is appended with the turn before it, and so is the request that follows,
so that a decision costs one append. Every number that looks random comes from the match's seed.

A match that stopped anywhere goes on from its events: the agent whose turn was under way runs
again, and what it asks is answered from the log as far as the log goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from engine.client import Engine, Stray
from engine.errors import EngineError, RecordTooLong
from games.base import CHANCE, State, View
from games.errors import ConformanceError, IllegalAction
from games.questions import Option
from runtime.agents.base import Act, Turn
from runtime.agents.patience import Patience
from runtime.errors import AgentFailed, CannotPlay
from runtime.fold import begin, state_hash, view_hashes
from runtime.journal import Journal
from runtime.lots import chance_lot, fallback_lot
from runtime.outbox import Outbox
from runtime.primes import Primes
from runtime.replay import refold
from runtime.requests import complete, derive, questions_of
from runtime.table import Table
from store.events import (
    ActionRefused,
    ChanceDrawn,
    ChatCost,
    EpochStarted,
    How,
    MatchEnded,
    MatchPaused,
    MatchStarted,
    Parent,
    TurnTaken,
)
from store.log import Recorded

REPAIRS = 1
"""How often an agent may name another action after an illegal one."""

End = Literal["terminated", "truncated", "paused"]


class MatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a match came out; `turns` counts chance too."""

    match: str
    end: End
    reason: str
    returns: tuple[float, ...]
    turns: int


class Match:
    """One match under way. Only `run` and `discard` change it, from one event loop."""

    def __init__(self, table: Table, journal: Journal) -> None:
        self._table = table
        self._journal = journal
        self._paused: str | None = None
        self._shown = journal.fold.state.view(0)
        self._outbox: Outbox | None = None
        self._primes: Primes | None = None
        if any(table.engines):
            self._primes = Primes(journal, table.asked)
            self._outbox = Outbox(journal, table.engines, self._primes, source=table.log.log_id)

    @classmethod
    def new(cls, table: Table, match: str, *, seed: int, parent: Parent | None = None) -> Match:
        """Start a match; nothing is in the log before it runs."""
        state = table.game.start(seats=len(table.seats), seed=seed)
        facts = table.game.facts
        started = MatchStarted(
            game=facts.id,
            rules_version=facts.rules_version,
            layout_version=facts.layout_version,
            seats=tuple(seat.name for seat in table.seats),
            seed=seed,
            fallback=table.terms.fallback,
            overflow=facts.overflow,
            deadline_s=table.terms.deadline_s,
            window=min(
                (engine.model.window for engine in table.engines if engine is not None),
                default=None,
            ),
            state_hash=state_hash(state),
            views=view_hashes(state, len(table.seats)),
            parent=parent,
        )
        fold = begin(match, started, state)
        return cls(table, Journal.of_new_match(table.log, fold, table.tally))

    @classmethod
    def fork(cls, table: Table, match: str, parent: Sequence[Recorded]) -> Match:
        """Go on from the last of a match's events as another match.

        The parent's seed stays: what chance does after the same turns is the same.

        Raises:
            ReplayDiffers: With this code the parent's events do not lead to where they led.
            CannotPlay: The parent's agents are not as many, or it has ended.
        """
        end = refold(parent, game=table.game)
        started = end.started
        if len(table.seats) != len(started.seats):
            raise CannotPlay(
                f"match {end.match} has {len(started.seats)} seats, not {len(table.seats)};"
                " name one agent for each"
            )
        if end.ended is not None or end.state.actor is None:
            raise CannotPlay(
                f"match {end.match} has ended at version {parent[-1].version}; name an earlier one"
            )
        last = parent[-1]
        where = Parent(match=last.match, version=last.version, hash=last.hash.hex(), turns=end.turn)
        fork = cls.new(table, match, seed=started.seed, parent=where)
        journal = fork._journal
        for each in parent:
            match each.event:
                case TurnTaken() as event:
                    journal.record(replace(event, how="parent", decision=None, draw=None, note=""))
                case ChanceDrawn() | EpochStarted() as event:
                    journal.record(event)
                case _:
                    pass
        return fork

    @classmethod
    def resume(cls, table: Table, recorded: Sequence[Recorded]) -> Match:
        """Take up a match where its events end.

        Raises:
            ReplayDiffers: With this code the events do not lead to where they led.
        """
        fold = refold(recorded, game=table.game)
        match = cls(table, Journal(table.log, fold, table.tally))
        if match._outbox is not None:
            match._outbox.resume(recorded)
        return match

    def discard(self, decision: str, stray: Stray) -> None:
        """Record an answer that came and that nobody waits for."""
        if self._outbox is not None:
            self._outbox.discard(decision, stray)

    async def run(self) -> MatchResult:
        """Play to the end, or until the match pauses.

        Raises:
            CannotPlay: The rules and the first question do not fit the window; nothing is logged.
            RuntimeFault, GamesError, StoreError: The match stops where the log has it, and can
                be resumed.
        """
        journal = self._journal
        options = self._settle()
        if journal.new and options:
            engine = self._table.engines[journal.fold.state.actor or 0]
            if engine is not None:
                self._check_fit(engine, options)
        while options:
            await self._turn(options)
            options = self._settle()
        await journal.save()
        fold = journal.fold
        ended = fold.ended
        return MatchResult(
            match=fold.match,
            end="paused" if ended is None else ended.end,
            reason=self._paused or "" if ended is None else ended.reason,
            returns=fold.state.returns() if ended is None else ended.returns,
            turns=fold.turn,
        )

    def _settle(self) -> tuple[Option, ...]:
        """Do all that the rules alone decide; give the options of the seat that has a choice.

        There are none when the match has ended or paused.
        """
        while self._journal.fold.ended is None and self._paused is None:
            state = self._journal.fold.state
            if state.actor is None:
                self._end("terminated")
            elif state.actor == CHANCE:
                self._chance()
            else:
                options = state.options()
                if len(options) > 1:
                    if len({option.id for option in options}) < len(options):
                        raise self._broken("is offered a label twice; each has to name one option")
                    most = self._table.game.facts.max_options
                    if len(options) > most:
                        raise self._broken(
                            f"is offered {len(options)} options, and the game's facts say that"
                            f" {most} are the most"
                        )
                    return options
                if not options:
                    raise self._broken("is to act and has no legal action; the game has to end")
                self._take(options[0].id, "forced")
        return ()

    def _broken(self, what: str) -> ConformanceError:
        fold = self._journal.fold
        game = fold.started.game
        return ConformanceError(
            f"{game}, seed {fold.started.seed}, turn {fold.turn}: seat {fold.state.actor} {what};"
            f" `ostinato check '{game}'` finds where"
        )

    async def _turn(self, options: tuple[Option, ...]) -> None:
        """Let the seat's agent act; fall back where it cannot."""
        fold = self._journal.fold
        if len(fold.refused) > REPAIRS:
            self._fall_back(f"{len(fold.refused)} illegal actions", options)
        else:
            await self._act(options)

    async def _act(self, options: tuple[Option, ...]) -> None:
        fold = self._journal.fold
        agent = self._table.seats[fold.state.actor or 0].agent
        if not agent.asks:  # one that asks saves before it sends, together with its request
            await self._journal.save()
            if self._primes is not None and not agent.quick:
                await self._primes.send()
        patience = Patience(agent.deadline_s or fold.started.deadline_s)
        ask = None
        if self._outbox is not None:
            self._outbox.rewind()
            ask = patience.excluding(self._outbox.ask)
        turn = Turn(fold, options, facts=self._table.game.facts, ask=ask)
        try:
            act = await patience.act(agent, turn)
        except (EngineError, AgentFailed) as error:
            if isinstance(error, RecordTooLong):
                self._overflow()
            else:
                self._fall_back(f"{error.code}: {error}", options)
        else:
            self._accept(act)

    def _accept(self, act: Act) -> None:
        fold = self._journal.fold
        try:
            state = fold.state.apply(act.action)
        except IllegalAction as error:
            # The label is the agent's own text and may hold what no event can.
            action = act.action.encode(errors="backslashreplace").decode()
            refused = ActionRefused(
                seat=fold.state.actor or 0, action=action, message=str(error), chat=act.chat
            )
            self._journal.record(refused)
            return
        last = fold.asked[-1] if fold.asked else None
        if last is not None and last.answer is not None:
            decision = last.request.decision
            self._take(act.action, "decision", draw=act.draw, decision=decision, state=state)
        else:
            self._take(act.action, "agent", draw=act.draw, chat=act.chat, state=state)

    def _fall_back(self, why: str, options: tuple[Option, ...]) -> None:
        started = self._journal.fold.started
        lot = fallback_lot(self._journal.fold, options)
        if lot is not None:
            self._take(lot.label, "fallback", draw=lot.draw, note=why)
        elif started.fallback == "pause":
            self._pause(why)
        else:
            self._pause(f"{why}; fallback {started.fallback!r} has no legal action here")

    def _overflow(self) -> None:
        """The next record does not fit: start the text anew, once a turn, or end the match."""
        fold = self._journal.fold
        if fold.started.overflow == "stop" or fold.rebased:
            self._end("truncated", "record_too_long")
            return
        state = fold.state.rebase()
        event = EpochStarted(
            epoch=fold.epoch + 1, state_hash=state_hash(state), views=self._views(state)
        )
        self._journal.record(event, state)

    def _chance(self) -> None:
        fold = self._journal.fold
        outcome, number = chance_lot(fold)
        state = fold.state.apply(outcome)
        event = ChanceDrawn(
            outcome=outcome,
            draw=number,
            state_hash=state_hash(state),
            views=self._views(state),
        )
        self._journal.record(event, state)

    def _take(
        self,
        action: str,
        how: How,
        *,
        draw: float | None = None,
        decision: str | None = None,
        note: str = "",
        chat: ChatCost | None = None,
        state: State | None = None,
    ) -> None:
        fold = self._journal.fold
        state = fold.state.apply(action) if state is None else state
        event = TurnTaken(
            seat=fold.state.actor or 0,
            action=action,
            how=how,
            state_hash=state_hash(state),
            views=self._views(state),
            decision=decision,
            draw=draw,
            note=note,
            chat=chat,
        )
        self._journal.record(event, state)

    def _pause(self, reason: str) -> None:
        self._journal.record(MatchPaused(reason=reason))
        self._paused = reason

    def _end(self, end: Literal["terminated", "truncated"], reason: str = "") -> None:
        returns = self._journal.fold.state.returns()
        self._journal.record(MatchEnded(end=end, returns=returns, reason=reason))

    def _views(self, state: State) -> tuple[str, ...]:
        self._require_growth(state.view(0))
        return view_hashes(state, len(self._table.seats))

    def _require_growth(self, view: View) -> None:
        """Refuse a state that takes back what agents were told; the log stays before it."""
        before, self._shown = self._shown, view
        if view.epoch == before.epoch and not view.public.startswith(before.public):
            raise self._broken("acted, and the public text lost or changed what it said before")

    def _check_fit(self, engine: Engine, options: tuple[Option, ...]) -> None:
        """Refuse a match whose rules and first question do not fit the window."""
        state = self._journal.fold.state
        facts = self._table.game.facts
        chosen = complete(options, ())
        questions = questions_of(state.questions(), options, factors=facts.factors, chosen=chosen)
        tokens = engine.model.measure(derive(state.view(state.actor or 0), questions).ask)
        if tokens > engine.model.window:
            raise CannotPlay(
                f"{facts.id}: rules and first question take {tokens} tokens, the window of"
                f" {engine.model.name} is {engine.model.window} (record_too_long); take a shorter"
                " variant of the game or a model with a larger window"
            )
