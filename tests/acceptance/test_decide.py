"""`ostinato decide`: one answer or one error a line, in the file's order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command

GOOD = {
    "model": "any",
    "state": "It rains.",
    "questions": {
        "wet": {"type": "noul"},
        "go": {"type": "choice", "criteria": {"out": None, "in": "stay"}},
        "how": {"type": "score", "criteria": ["bad", "good"]},
    },
}
LONG = GOOD | {"state": "x" * 400}


def line(request: object, **more: object) -> bytes:
    return json.dumps({"request": request, **more}).encode()


LINES = {
    "plain": json.dumps(GOOD).encode(),
    "named": line(GOOD, name="named"),
    "NaN": line(GOOD | {"state": {"x": 0}}, name="NaN").replace(b'"x": 0', b'"x": NaN'),
    "surrogate": line(GOOD | {"state": "\ud800"}, name="surrogate"),
    "bytes": b'{"request": {"state": "\xff"}}',
    "text": b"hello",
    "list": b"[1, 2]",
    "deep": b"[" * 100_000,
    "no state": line({"model": "m", "questions": GOOD["questions"]}, name="no state"),
    "no such type": line(GOOD | {"questions": {"q": {"type": "poem"}}}, name="no such type"),
    "too long": line(LONG, name="too long"),
    "length 0": line(GOOD, name="length 0", max_length=0),
    "last": line(GOOD | {"model": "other"}, name="last"),
}
ANSWERED = {"plain", "named", "last"}


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b"\n\n".join(LINES.values()) + b"\n")
    return file


def decide(ostinato: Command, file: Path, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    done = ostinato("decide", "--model", "mock:window=150", "--requests", file, "--json", *flags)
    assert done.stderr == ""
    return done.code, done.documents


def test_a_bad_line_is_its_own_error(ostinato: Command, requests: Path):
    code, answers = decide(ostinato, requests)
    assert code == 3
    assert len(answers) == len(LINES)
    for (name, data), (number, answer) in zip(LINES.items(), enumerate(answers), strict=True):
        named = json.loads(data).get("name") if name in ("named", "last") else None
        assert answer["name"] == (named or answer["name"])
        assert answer["name"] in (name, f"line {2 * number + 1}")
        if name in ANSWERED:
            assert set(answer) == {"name", "response"}
        else:
            assert set(answer) == {"name", "error"}
            assert set(answer["error"]) == {"code", "message"}
            wanted = "record_too_long" if name == "too long" else "bad_request"
            assert answer["error"]["code"] == f"engine/{wanted}", answer
            assert "\n" not in answer["error"]["message"]
    assert answers[0]["response"]["answers"] == answers[-1]["response"]["answers"]
    assert answers[0]["response"]["model"] == "any"
    assert answers[-1]["response"]["model"] == "other"


def test_answers_by_type(ostinato: Command, tmp_path: Path):
    file = tmp_path / "good.jsonl"
    file.write_bytes(LINES["plain"])
    code, (answer,) = decide(ostinato, file)
    assert code == 0
    answers = answer["response"]["answers"]
    assert set(answers) == {"wet", "go", "how"}
    assert answers["go"]["choice"] in ("out", "in")
    assert 0 <= answers["wet"]["noul"] <= 1

    done = ostinato("decide", "--model", "mock", "--requests", file)
    assert done.code == 0
    assert len(done.stdout.splitlines()) == 3
    assert "1 answered, 0 refused" in done.stderr


def test_an_empty_file(ostinato: Command, tmp_path: Path):
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    assert decide(ostinato, tmp_path / "empty.jsonl") == (0, [])


def test_an_engine_that_fails(ostinato: Command, tmp_path: Path):
    file = tmp_path / "good.jsonl"
    file.write_bytes(LINES["plain"])
    done = ostinato("decide", "--model", "mock:fail=1", "--requests", file, "--json")
    assert done.code == 3
    assert done.documents[0]["error"]["code"] == "engine/failed"


def test_names_that_look_like_markup_are_printed_as_they_are(ostinato: Command, tmp_path: Path):
    questions = {"[/q]": {"type": "choice", "criteria": {"[red]": None, "[/red]": None}}}
    bad = {"[/q]": {"type": "poem"}}
    file = tmp_path / "requests.jsonl"
    lines = (line(GOOD | {"questions": each}, name="[/n]") for each in (questions, bad))
    file.write_bytes(b"\n".join(lines))
    done = ostinato("decide", "--model", "mock", "--requests", file)
    assert done.code == 3
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"\[/n\]: \[/q\]: \[/?red\] \(confidence 0\.\d{4}\)", first)
    assert second.startswith("[/n]: engine/")
