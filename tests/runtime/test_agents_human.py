from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from games import load_game
from runtime.agents.human import HumanAgent, HumanSettings
from runtime.errors import BadInput
from runtime.replay import replay_match
from store.memory import MemoryLog
from tests.support.matches import MATCH, events_of, play_one, resume_one, seat, turns
from tests.support.runs import KeptRun as Run

TICTACTOE = load_game("tictactoe")
KUHN = load_game("kuhn_poker")


@contextmanager
def person(
    typed: str, *, terminal: bool = False, settings: HumanSettings | None = None, end: bool = True
) -> Iterator[tuple[HumanAgent, io.StringIO]]:
    """A human whose keyboard is a pipe, and what it was shown."""
    source, keyboard = os.pipe()
    os.write(keyboard, typed.encode())
    if end:
        os.close(keyboard)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100)
    try:
        yield HumanAgent(settings or HumanSettings(), source=source, console=console), shown
    finally:
        os.close(source)
        if not end:
            os.close(keyboard)


async def test_person_chooses_by_label_or_number() -> None:
    with person("top-left\n 1 \nright\nleft\n") as (agent, shown):
        log, result = await play_one(TICTACTOE, [agent, "random"], seed=3)
    own = [turn.action for turn in turns(events_of(log)) if turn.seat == 0]
    assert own[0] == "top-left"
    assert result.turns >= 5
    assert shown.getvalue().startswith("seat 0 of m-1 ")
    assert "1  top-left" in shown.getvalue()
    assert not replay_match(log.read(MATCH)).differences


async def test_person_is_asked_again_after_what_is_no_option() -> None:
    with person("middle\n99\n\nbet\n") as (agent, shown):
        log, _ = await play_one(KUHN, [agent, "random"])
    assert turns(events_of(log))[0].action == "bet"
    assert "'middle' is none of the 2 options." in shown.getvalue()
    assert shown.getvalue().count("Your choice") == 4
    assert "action_refused" not in str(events_of(log))


async def test_options_are_shown_with_what_is_known_of_them() -> None:
    with person("pass\npass\n") as (agent, shown):
        await play_one(KUHN, [agent, "random"])
    assert "   2  bet  (bet one more chip)\n" in shown.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
async def test_person_sees_the_own_view_and_nothing_else(terminal: bool) -> None:
    """The other seat's card is nowhere on the screen before it is laid open."""
    for seed in range(6):
        enter = "\n" if terminal else ""
        with person(f"{enter}pass\n{enter}pass\n", terminal=terminal) as (agent, shown):
            log, _ = await play_one(KUHN, [agent, "random"], seed=seed)
        dealt = [event.outcome for event in events_of(log) if hasattr(event, "outcome")]
        assert f"Your card is the {dealt[0]}." in shown.getvalue()
        assert f"Your card is the {dealt[1]}." not in shown.getvalue()
        assert "You are player 1" not in shown.getvalue()
        if terminal:  # on a page of its own, left again at the end of each turn
            assert shown.getvalue().count("\x1b[?1049h") == shown.getvalue().count("\x1b[?1049l")
            before, _, _ = shown.getvalue().partition("press Enter")
            assert "Your card" not in before


async def test_end_of_the_input_stops_the_run_and_another_goes_on() -> None:
    log = MemoryLog()
    with (
        person("centre\n") as (agent, _),
        pytest.raises(BadInput, match="standard input ended, and seat 0 of match m-1"),
    ):
        await play_one(TICTACTOE, [agent, "random"], log=log)
    with person("1\n1\n1\n1\n") as (agent, _):
        result = await resume_one(log, TICTACTOE, [agent, "random"])
    assert result.end == "terminated"
    assert turns(events_of(log))[0].action == "centre"


async def test_line_without_an_end_still_counts() -> None:
    with person("bet") as (agent, _):
        log, _ = await play_one(KUHN, [agent, "random"], seed=2)
    assert turns(events_of(log))[0].action == "bet"


async def test_person_who_does_not_answer_is_given_up() -> None:
    with person("", settings=HumanSettings(deadline=0.01), end=False) as (agent, _):
        _, result = await play_one(TICTACTOE, [agent, "random"])
    assert result.reason == "runtime/agent_failed: it gave no action within 0.01 s"


async def test_other_matches_go_on_while_a_person_thinks() -> None:
    with person("", end=False) as (agent, shown):
        async with anyio.create_task_group() as group:
            group.start_soon(play_one, TICTACTOE, [agent, "random"])
            await play_one(TICTACTOE, ["random", "random"])
            with anyio.fail_after(60):
                while "Your choice" not in shown.getvalue():
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()


async def test_regular_file_can_be_the_keyboard(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    file.write_text("bet\nbet\n")
    source = os.open(file, os.O_RDONLY)
    try:
        console = Console(file=io.StringIO())
        agent = HumanAgent(HumanSettings(), source=source, console=console)
        _, result = await play_one(KUHN, [agent, "random"])
    finally:
        os.close(source)
    assert result.end == "terminated"


async def test_matches_of_a_person_come_one_after_the_other() -> None:
    with person("1\n" * 40) as (agent, shown):
        report = await Run(MemoryLog(), TICTACTOE, [seat(agent), seat("random")], matches=4).play()
    ids = [result.match for result in report.matches]
    headings = re.findall(r"seat 0 of (\S+) ", shown.getvalue())
    assert headings == sorted(headings)
    assert set(headings) == set(ids)
