from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from games.registry import load_game
from runtime.agents.chat import ROUTE, parse_chat
from runtime.agents.registry import make_agent
from runtime.errors import BadInput, UnknownAgent
from runtime.replay import replay_file
from runtime.table import Seat, Terms
from store.events import ActionRefused, TurnTaken
from store.sqlite import open_log
from tests.support.runs import KeptRun as Run
from tests.support.stubs import Stub, stub_server


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub


def says(text: Any, **usage: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 50, "completion_tokens": 2} | usage
    return {"model": "m", "choices": [{"message": {"content": text}}], "usage": counts}


async def play(stub: Stub, folder: Path, parameters: str = "", game: str = "tictactoe") -> Any:
    """Play one match, a chat agent first; give its report and events, once it has replayed."""
    spec = f"chat:{stub.url}{parameters}"
    seats = [Seat(name, make_agent(name)) for name in (spec, "random")]
    file = folder / "log.db"
    log = open_log(file)
    try:
        terms = Terms(fallback="random", deadline_s=9)
        report = await Run(log, load_game(game), seats, matches=1, seed=3, terms=terms).play()
        events = [each.event for each in log.read(report.matches[0].match)]
    finally:
        await log.close()
    assert not (await replay_file(file)).differences
    return report, events


async def test_labels_are_actions_and_their_cost_is_recorded(stub: Stub, tmp_path: Path):
    for cell in "centre", " top\n", "bottom-right":
        stub.says(says(cell, prompt_tokens_details={"cached_tokens": 32}))
    report, events = await play(stub, tmp_path)
    prompts = [body["messages"][1]["content"] for _, _, body in stub.seen]
    options = prompts[0].split("Options:\n")[1].splitlines()
    assert options[-1] == "Label:"
    assert {path for path, _, _ in stub.seen} == {ROUTE}
    mine = [e for e in events if isinstance(e, TurnTaken | ActionRefused) and e.chat]
    assert report.chats.answers == len(mine) == len(stub.seen)
    assert report.chats.tokens_reused == 32 * len(mine)
    assert report.chats.tokens_read == 18 * len(mine)
    assert [each.action for each in mine[:1]] == ["centre"]
    assert [each.how for each in mine[:1] if isinstance(each, TurnTaken)] == ["agent"]
    first = mine[0].chat
    assert first is not None
    assert (first.model, first.tokens_written) == ("m", 2)
    # what a seat sees comes first and grows, so a server reads only what was added
    starts = [prompt.split("\n\nOptions:")[0] for prompt in prompts]
    views = list(dict.fromkeys(starts))
    rules = views[0][: len(views[0]) // 2]
    assert all(view.startswith(rules) for view in views)


@pytest.mark.parametrize(
    "text", ["I would take the middle", "not centre, I play top-left", "top-left\ncentre", ""]
)
async def test_what_is_no_label_is_repaired_once(stub: Stub, tmp_path: Path, text: str):
    stub.says(says(text))
    report, events = await play(stub, tmp_path)
    refused = [event for event in events if isinstance(event, ActionRefused)]
    fallbacks = [e for e in events if isinstance(e, TurnTaken) and e.how == "fallback"]
    assert len(refused) == 2 * len(fallbacks) == report.chats.answers > 0
    again = stub.seen[1][2]["messages"][1]["content"]
    assert again.startswith(stub.seen[0][2]["messages"][1]["content"].split("Label:")[0])
    assert "Your last answer was refused" in again


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ({"error": {"message": "no"}}, 500),
        (b"<html>", 200),
        ([], 200),
        ({"choices": []}, 200),
        ({"choices": [{"message": {"content": "a1"}}], "usage": 3}, 200),
    ],
)
async def test_a_server_that_does_not_chat_leaves_it_to_the_fallback(
    stub: Stub, tmp_path: Path, reply: Any, status: int
):
    stub.says(reply, status)
    report, events = await play(stub, tmp_path)
    notes = [e.note for e in events if isinstance(e, TurnTaken) and e.how == "fallback"]
    assert notes
    assert all(note.startswith("engine/failed: chat: ") for note in notes)
    assert report.chats.answers == 0


async def test_parameters_reach_the_server(stub: Stub, tmp_path: Path):
    (tmp_path / "key").write_text("secret\n")
    stub.says(says(None))
    parameters = f",model=big,temperature=0.5,key-file={tmp_path / 'key'}"
    await play(stub, tmp_path, parameters)
    _, headers, body = stub.seen[0]
    assert headers["authorization"] == "Bearer secret"
    assert (body["model"], body["temperature"]) == ("big", 0.5)
    seeds = [seen[2]["seed"] for seen in stub.seen]
    assert len(set(seeds)) > 1
    stub.seen.clear()
    (tmp_path / "again").mkdir()
    await play(stub, tmp_path / "again", parameters)
    assert [seen[2]["seed"] for seen in stub.seen] == seeds


@pytest.mark.parametrize(
    "parameters",
    ["", "host", "ftp://x", "http://x,model", "http://x,size=3", "http://x,temperature=9"],
)
def test_parameters_that_make_no_sense(parameters: str):
    with pytest.raises(UnknownAgent, match="chat"):
        make_agent(f"chat:{parameters}")


def test_routes_and_keys(tmp_path: Path):
    assert parse_chat("http://h:1").url == f"http://h:1{ROUTE}"
    assert parse_chat("https://h/api/chat/").url == "https://h/api/chat"
    with pytest.raises(BadInput, match="absent"):
        make_agent(f"chat:http://h,key-file={tmp_path / 'absent'}")
