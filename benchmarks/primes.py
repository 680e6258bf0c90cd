"""What reading ahead gains: a question after turns on which other seats thought for a while.

What the last of them says cannot be read ahead; what the others said can.

python -m benchmarks.primes --model BUNDLE
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from engine.client import Engine
from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.embedded import embedded
from engine.models import open_model
from games.base import Game, GameFacts, Outcome, View
from games.questions import Option, Question, choice
from runtime.agents.base import Act, Agent, Turn
from runtime.agents.registry import make_agent
from runtime.play import Run
from runtime.table import Seat, Terms
from store.events import DecisionAnswered
from store.memory import MemoryLog

RULES = 6_000  # characters before the first turn
GROWN = (40, 400, 1_200)  # characters that a turn adds
SEATS = 4
ROUNDS = 5
THINKS_S = 1.0
AT_ONCE = (1, 2)
TERMS = Terms(deadline_s=300.0)  # on a machine that is shared


class Talk(msgspec.Struct, frozen=True):
    """Seats in turn, each adding to the public text; the last one, which is asked, says little.

    No two matches share any of it.
    """

    grown: int
    seed: int
    done: tuple[str, ...] = ()

    @property
    def actor(self) -> int | None:
        """Whose turn it is."""
        return None if len(self.done) == ROUNDS * SEATS else len(self.done) % SEATS

    def options(self) -> tuple[Option, ...]:
        """Give what one may say."""
        return (Option("agree"), Option("object"))

    def outcomes(self) -> tuple[Outcome, ...]:
        """There is no chance."""
        return ()

    def apply(self, action: str) -> Talk:
        """Note what was said."""
        return msgspec.structs.replace(self, done=(*self.done, action))

    def view(self, seat: int) -> View:
        """Give all that was said."""
        lines = (
            f"{number}. {action}: {self._say(number, self._length(number))}\n"
            for number, action in enumerate(self.done)
        )
        return View(f"Talk {self.seed}\n{self._say(-1, RULES)}\n{''.join(lines)}", "")

    def _length(self, number: int) -> int:
        return 20 if number % SEATS == SEATS - 1 else self.grown

    def _say(self, number: int, characters: int) -> str:
        pick = random.Random(self.seed + number)
        words = (f"word{pick.randrange(1000)}" for _ in range(characters // 4))
        return " ".join(words)[:characters]

    def questions(self) -> tuple[Question, ...]:
        """Ask for the next word."""
        return (choice("answer", "What do you say to that?", self.options()),)

    def returns(self) -> tuple[float, ...]:
        """Nobody wins."""
        return (0.0,) * SEATS

    def encode(self) -> bytes:
        """Give the turns as bytes."""
        return ",".join((str(self.seed), *self.done)).encode()

    def rebase(self) -> Talk:
        """There is nothing shorter to say."""
        return self


class TalkGame:
    """The game of it; what is said follows from the match's seed."""

    def __init__(self, grown: int) -> None:
        self.grown = grown
        self.facts = GameFacts(
            id=f"talk_{grown}",
            title="Talk",
            rules_version=1,
            layout_version=1,
            min_seats=SEATS,
            max_seats=SEATS,
            max_options=2,
            max_turns=ROUNDS * SEATS,
            chance=False,
            hidden=False,
            min_return=0.0,
            max_return=0.0,
            zero_sum=True,
        )

    def start(self, *, seats: int, seed: int) -> Talk:
        """Begin."""
        return Talk(self.grown, seed)

    def decode(self, data: bytes) -> Talk:
        """Read what `encode` wrote."""
        seed, *done = data.decode().split(",")
        return Talk(self.grown, int(seed), tuple(done))


class Thinker(Agent):
    """Takes its time."""

    async def act(self, turn: Turn) -> Act:
        """Think, then say the one or the other."""
        await anyio.sleep(THINKS_S)
        return Act(turn.options[turn.index % 2].id)


class Unprimed:
    """The same engine that is told nothing ahead."""

    def __init__(self, engine: Engine) -> None:
        self.model = engine.model
        self._engine = engine

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Ask the engine."""
        return await self._engine.decide(request)

    async def prime(self, prime: Prime) -> None:
        """Forget it."""


async def play(
    log: MemoryLog, engine: Engine, game: Game, *, at_once: int, seed: int
) -> list[DecisionAnswered]:
    """Play, and give the answers but for each match's first, which reads the rules."""
    seats = [Seat("thinker", Thinker())] * (SEATS - 1)
    seats.append(Seat("decision", make_agent("decision")))
    run = Run(log, game, seats, matches=at_once, seed=seed, concurrency=at_once, terms=TERMS)
    answers: list[DecisionAnswered] = []
    for match in (await run.play(engine)).matches:
        assert match.end == "terminated", match.reason
        events = [each.event for each in log.read(match.match)]
        answers += [event for event in events if isinstance(event, DecisionAnswered)][1:]
    return answers


async def run(model: str, folder: Path, table: Table) -> None:
    """Fill the table: without and with, one right after the other."""
    log = MemoryLog()
    async with embedded(open_model(model), home=folder, source=log.log_id) as engine:
        for at_once in AT_ONCE:
            for grown in GROWN:
                game = TalkGame(grown)
                found: list[tuple[float, float]] = []
                for seed, asked in enumerate((Unprimed(engine), engine)):
                    answers = await play(log, asked, game, at_once=at_once, seed=seed)
                    found.append(
                        (
                            statistics.median(answer.total_ms for answer in answers),
                            statistics.median(answer.tokens_read for answer in answers),
                        )
                    )
                (without, read), (primed, left) = found
                table.add_row(
                    str(at_once),
                    f"{grown:,}",
                    f"{without:.0f} ms ({read:,.0f})",
                    f"{primed:.0f} ms ({left:,.0f})",
                    f"{primed / without:.2f}",
                )


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a bundle, as `ostinato --model` takes it")
    model: str = parser.parse_args().model
    title = f"A question after turns of {THINKS_S:g} s: median, and tokens read for it"
    table = Table(title=title, caption=machine_line())
    for column in ("matches at once", "a turn adds", "without", "read ahead", "ratio"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        anyio.run(run, model, Path(name), table)
    Console().print(table)


if __name__ == "__main__":
    main()
