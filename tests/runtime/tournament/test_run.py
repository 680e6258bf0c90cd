from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from games import load_game
from games.base import Game
from runtime.errors import BadInput, CannotPlay
from runtime.tournament.plan import Budget, Contestant, Plan, fixtures, read_plan
from runtime.tournament.report import final_table, markdown, write_report
from runtime.tournament.run import Outcome, Tournament
from runtime.tournament.stats import Sprt
from store.events import MatchStarted
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.command import wait_for
from tests.support.engines import DirectEngine

pytest.importorskip("choix")

TICTACTOE = load_game("tictactoe")


def plan(*agents: str, **fields: Any) -> Plan:
    contestants = tuple(
        Contestant(name=f"{agent} {number}", agent=agent) for number, agent in enumerate(agents)
    )
    return Plan(**{"game": "tictactoe", "agents": contestants, "seeds": 4, **fields})


async def play(
    plan: Plan, *, log: MemoryLog | None = None, game: Game = TICTACTOE, models: str = "mock:seed=1"
) -> Outcome:
    tournament = Tournament(plan, game, log or MemoryLog())
    engines = [
        DirectEngine(models) if number in tournament.asking else None
        for number in range(len(plan.agents))
    ]
    return await tournament.play(engines)


def table(outcome: Outcome) -> list[Any]:
    """Give the final table without times, which are never the same twice."""
    return [msgspec.structs.replace(row, engine_s_a_match=0.0) for row in final_table(outcome)]


def test_every_pairing_meets_in_every_seat_on_the_same_seeds() -> None:
    three = plan("random", "random", "random", seeds=2)
    schedule = list(fixtures(three, 2))
    assert [each.number for each in schedule] == list(range(12))
    met = [(each.players, each.seed) for each in schedule]
    assert len(set(met)) == 12
    assert len({seed for _, seed in met}) == 2
    for (players, seed), (swapped, same) in zip(met[::2], met[1::2], strict=True):
        assert (swapped, same) == (players[::-1], seed)
    gauntlet = plan("random", "random", "random", format="gauntlet", seeds=1)
    assert all(0 in each.players for each in fixtures(gauntlet, 2))
    assert len(list(fixtures(gauntlet, 2))) == 4
    more = list(fixtures(plan("random", "random", "random", seeds=3), 2))
    assert more[:12] == schedule


async def test_counts_add_up_and_a_finished_tournament_is_not_played_again(tmp_path: Path) -> None:
    log = MemoryLog()
    cup = plan("decision", "random", "decision:temperature=1")
    outcome = await play(cup, log=log)
    rows = final_table(outcome)
    assert outcome.stop == "all played"
    assert outcome.standings.matches == 24 == log.count()
    assert sum(row.won for row in rows) == sum(row.lost for row in rows)
    assert sum(row.matches for row in rows) == 48
    by_name = {row.name: row for row in rows}
    assert by_name["random 1"].decisions_a_match == by_name["random 1"].tokens_a_match == 0
    assert by_name["decision 0"].decisions_a_match > 1
    assert by_name["decision 0"].tokens_a_match > 100
    assert sum(sum(seat[:3]) for seat in outcome.standings.seats) == 48
    again = await play(cup, log=log)
    assert table(again) == table(outcome)
    assert log.count() == 24
    write_report(outcome, tmp_path / "report")
    names = {"report.md", "standings.csv", "seats.csv", "ratings.svg", "seats.svg"}
    assert {file.name for file in (tmp_path / "report").iterdir()} == names
    assert all(agent.name in markdown(outcome) for agent in cup.agents)
    lines = (tmp_path / "report" / "standings.csv").read_text().splitlines()
    assert len(lines) == 4


async def test_seats_of_one_match_ask_their_own_models() -> None:
    log = MemoryLog()
    tournament = Tournament(plan("decision", "decision", seeds=1), TICTACTOE, log)
    one, two = DirectEngine("mock:seed=1"), DirectEngine("mock:seed=2", window=500)
    await tournament.play([one, two])
    assert one.requests
    assert two.requests
    assert not {r.id for r in one.requests} & {r.id for r in two.requests}
    started = [recorded[0].event for recorded in log.scan()]
    assert all(isinstance(each, MatchStarted) and each.window == 500 for each in started)


async def test_budgets_and_the_test_stop_in_the_schedules_order() -> None:
    random_pair = ("random", "random")
    for fields, stop in (
        ({"budget": Budget(matches=7)}, "matches"),
        ({"budget": Budget(minutes=1e-9)}, "minutes"),
        ({"sprt": Sprt(elo0=-150, elo1=-50)}, "elo1"),
    ):
        for concurrency in (1, 13):
            cup = plan(*random_pair, seeds=100, concurrency=concurrency, **fields)
            outcome = await play(cup)
            assert outcome.stop == stop
            if stop == "matches":
                assert outcome.standings.matches == 7
            elif stop == "elo1":
                expected = await play(msgspec.structs.replace(cup, concurrency=5))
                assert table(outcome) == table(expected)
                assert outcome.standings.matches % 2 == 0
    asking = plan("decision", "random", seeds=100, budget=Budget(tokens=3000))
    counts = {(await play(asking)).standings.matches for _ in range(2)}
    assert len(counts) == 1


async def test_one_and_three_seats_are_rated_too() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:kuhn_poker(players=3)")
    three = plan("random", "random", "decision", game=game.facts.id, seeds=3)
    outcome = await play(three, game=game)
    assert outcome.standings.matches == 9
    assert "skill" in markdown(outcome)
    game = load_game("expedition(rules=short,size=small)")
    alone = plan("random", "random", game=game.facts.id, seeds=2)
    outcome = await play(alone, game=game)
    assert outcome.standings.matches == 4
    assert final_table(outcome)[0].score is None


async def test_nothing_grows_with_the_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    tournament = Tournament(plan("random", "random", seeds=200), TICTACTOE, MemoryLog())

    original = tournament._count

    def count() -> None:
        original()
        kept.append(len(tournament._waiting) + len(tournament._standings.lines))

    monkeypatch.setattr(tournament, "_count", count)
    await tournament.play([None, None])
    assert len(kept) == 400
    assert max(kept) <= 2 + 16


CUP = """
game = "tictactoe"
seeds = {seeds}
concurrency = 4
[[agents]]
name = "one"
agent = "random"
[[agents]]
name = "two"
agent = "random"
"""


@pytest.mark.parametrize(
    ("matches", "kills"), [(200, 3), pytest.param(200, 20, marks=pytest.mark.long)]
)
def test_killed_at_random_it_comes_to_the_same_table(
    tmp_path: Path, matches: int, kills: int
) -> None:
    file = tmp_path / "cup.toml"
    file.write_text(CUP.format(seeds=matches // 2))
    code = "import sys; from runtime.cli import main; main()"

    def command(log: str) -> list[str]:
        return [
            *(sys.executable, "-c", code, "tournament", str(file), "--json"),
            *("--log", str(tmp_path / log), "--report", str(tmp_path / log[:-3])),
        ]

    whole = subprocess.run(command("whole.db"), check=True, capture_output=True, cwd=tmp_path)

    def begun() -> int:
        if not (tmp_path / "killed.db").exists():
            return 0
        log = open_log(tmp_path / "killed.db", read_only=True)
        try:
            return log.count()
        finally:
            log._reader.dispose()

    for target in sorted(random.Random(kills).sample(range(5, matches - 5), kills)):
        with subprocess.Popen(
            command("killed.db"), stdout=subprocess.DEVNULL, cwd=tmp_path
        ) as process:
            try:
                wait_for(
                    lambda process=process, target=target: begun() >= target or process.poll() == 0,
                    within_s=60,
                )
            finally:
                process.send_signal(signal.SIGKILL)
    last = subprocess.run(command("killed.db"), check=True, capture_output=True, cwd=tmp_path)
    one, two = msgspec.json.decode(whole.stdout), msgspec.json.decode(last.stdout)
    assert one.pop("report") != two.pop("report")
    assert one == two
    assert one["matches"] == matches


BAD = [
    ("game = ", "not TOML"),
    (f"seed = {'1' * 5000}", "not TOML: Exceeds"),
    (f"seed = {'[' * 5000}", "not TOML: maximum"),
    ("deadline_s = inf\n" + CUP.format(seeds=1), "deadline_s"),
    ('game = "tictactoe"\nagents = []', "no agents"),
    ('game = "tictactoe"\nmatches = 3\nagents = []', "matches is no key of a tournament"),
    (CUP.replace("concurrency = 4", "concurency = 4").format(seeds=1), "did you mean concurrency"),
    (CUP.format(seeds=0), "seeds"),
    (CUP.format(seeds=1).replace('"two"', '"one"'), "names that differ"),
    (CUP.format(seeds=1).rpartition("[[")[0], "1 of 2 seats of tictactoe have an agent"),
    (CUP.format(seeds=1) + "[sprt]\nelo0 = 5\nelo1 = 0\n", "elo0 has to be below"),
    (CUP.format(seeds=1) + "[sprt]\nelo0 = 0\nelo1 = 5\nalpha = 0.97\n", "sum to less than 1"),
    (CUP.format(seeds=1) + "[budget]\nmatch = 5\n", "budget.match is no key"),
    (CUP.format(seeds=1) + '[[agents]]\nname = "x"\nagent = "random"\nmodl = 1', "agents[2].modl"),
    (
        CUP.format(seeds=1)
        + '[[agents]]\nname = "x"\nagent = "random"\n[sprt]\nelo0 = 0\nelo1 = 5\n',
        "sprt compares two agents",
    ),
    (CUP.format(seeds=1).replace('"tictactoe"', '"tictacto"'), "game: no game 'tictacto'"),
    ("seats = 3\n" + CUP.format(seeds=1), "has 2 seats, not 3"),
    (
        CUP.format(seeds=1) + '[[agents]]\nname = "x"\nagent = "randon"\n',
        "agents[2].agent: no agent",
    ),
    (
        CUP.format(seeds=1).replace('"tictactoe"', '"kuhn_poker"')
        + '[[agents]]\nname = "x"\nagent = "minimax"\n',
        "agents[2].agent: minimax needs two seats",
    ),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "cup.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        read_plan(file)
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"{file}: ")


def test_a_person_is_not_let_into_a_tournament() -> None:
    with pytest.raises(CannotPlay, match=r"agent 'human 1' waits for a person.*ostinato play"):
        Tournament(plan("random", "human"), TICTACTOE, MemoryLog())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="name a tournament's file"):
        read_plan(tmp_path / "none.toml")
