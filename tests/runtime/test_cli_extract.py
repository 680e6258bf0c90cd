from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli.main import run
from tests.support.bundles import ORACLE

BASE, TUNED = str(ORACLE / "base"), str(ORACLE / "clef")


def test_extract_makes_a_bundle_and_verifies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    out = str(tmp_path / "b")
    assert run(["extract", "--base", BASE, "--tuned", TUNED, "--out", out]) == 0
    shown = capsys.readouterr()
    assert "23 matrices at rank 8, at most 0.17" in shown.out
    assert "estimate: 0 min" in shown.err

    case = json.loads((ORACLE / "requests.jsonl").read_text().splitlines()[0])
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps(case))
    arguments = ["extract", "--verify", out, "--requests", str(requests), "--json"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"]
    assert document["verification"]["answers"]["records"] == 2


def test_refusals_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["extract", "--base", BASE, "--tuned", TUNED, "--out", str(tmp_path / "b")]
    assert run([*arguments, "--rank", "4"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("a change of rank 8") == 20  # one line each, and the error
    assert "engine/bad_weights" in shown
    assert not (tmp_path / "b").exists()
    assert run([*arguments, "--rank", "4", "--allow-residual", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rank"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base", BASE], "--base, --tuned and --out are needed"),
        (["--rank", "0", "--base", BASE, "--tuned", TUNED, "--out", "b"], "--rank 0: take auto"),
        (["--rank", "513", "--base", BASE, "--tuned", TUNED, "--out", "b"], "--rank 513"),
        (["--dtype", "int4"], "take bf16 or float32"),
        (["--base", TUNED, "--tuned", BASE, "--out", "b"], "swap --base and --tuned"),
        (["--verify", BASE], "is no model bundle"),
    ],
)
def test_arguments_that_make_no_sense(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["extract", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_needs_no_torch() -> None:
    code = "import sys, runtime.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_request_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "b")
    assert run(["extract", "--base", BASE, "--tuned", TUNED, "--out", out, "--json"]) == 0
    (tmp_path / "r.jsonl").write_text("{")
    capsys.readouterr()
    assert run(["extract", "--verify", out, "--requests", str(tmp_path / "r.jsonl")]) == 1
    assert "r.jsonl: line 1: not JSON" in capsys.readouterr().err
    shutil.rmtree(out)
