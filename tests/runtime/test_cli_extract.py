from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.cli.app import run
from tests.support.bundles import ORACLE
from tests.support.quantized import quantized_base

BASE, TUNED = str(ORACLE / "base"), str(ORACLE / "clef")


def test_extract_makes_a_bundle_and_verifies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    out = str(tmp_path / "b")
    assert run(["extract", "--base", BASE, "--tuned", TUNED, "--out", out]) == 0
    shown = capsys.readouterr()
    assert "23 matrices at rank 8, at most 0.17" in shown.out
    assert re.search(r"estimate: 0 min \d+ s to 0 min \d+ s from here", shown.err)

    case = json.loads((ORACLE / "requests.jsonl").read_text().splitlines()[0])
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps(case))
    manifest = tmp_path / "b" / "bundle.json"
    made = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(made | {"answer": []}))  # as of a model too large to record
    arguments = ["extract", "--verify", out, "--requests", str(requests), "--json"]
    assert run(arguments) == 0
    assert json.loads(manifest.read_text())["answer"] == made["answer"]
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


def shorten(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"short")


def lose(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [(shorten, "not a safetensors file"), (lose, "No such file")],
)
def test_damaged_weights_are_one_line_and_leave_nothing(
    damage: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = Path(shutil.copytree(TUNED, tmp_path / "tuned"))
    damage(tuned)
    arguments = ["extract", "--base", BASE, "--tuned", str(tuned), "--out", str(tmp_path / "b")]
    assert run(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert line.endswith("[engine/bad_weights]")
    assert [path.name for path in tmp_path.iterdir()] == ["tuned"]


def test_a_folder_that_is_taken_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("precious")
    assert run(["extract", "--base", BASE, "--tuned", TUNED, "--out", str(tmp_path)]) == 1
    assert "is not empty; choose another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_bundle_is_put_on_another_base(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "b")
    assert run(["extract", "--base", BASE, "--tuned", TUNED, "--out", out, "--json"]) == 0
    other = quantized_base(tmp_path / "q", "gptq")
    capsys.readouterr()
    arguments = ["extract", "--rebase", out, "--base", str(other), "--out", str(tmp_path / "r")]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["quantization"] == "gptq, 4 bits"
    assert document["original"]["path"] == BASE
    assert run(["extract", "--rebase", out]) == 1
    assert "--rebase needs the other --base and --out" in capsys.readouterr().err


def test_the_command_line_needs_no_torch() -> None:
    code = "import sys, runtime.cli.app; sys.exit('torch' in sys.modules)"
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
