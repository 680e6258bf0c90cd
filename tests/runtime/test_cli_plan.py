from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.cli.app import run
from tests.support.bundles import adapter_bundle


def test_a_plan_is_a_table_with_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter_bundle(tmp_path)
    arguments = ["plan", "--model", str(tmp_path), "--gpu-memory"]
    assert run([*arguments, "2GiB"]) == 0
    shown = capsys.readouterr().out
    for part in ("weights", "adapter", "head features", "KV cache", "graphs", "█"):
        assert part in shown
    assert "up to 32,768 tokens" in shown
    assert run([*arguments, "2GB", "--json", "--kv-cache-dtype", "fp8"]) == 0
    assert json.loads(capsys.readouterr().out)["context"] == 32768


def test_a_profile_is_the_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter_bundle(tmp_path)
    arguments = ["plan", "--model", str(tmp_path), "--gpu-memory", "2GiB", "--json"]
    assert run([*arguments, "--profile", "long"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["window"], found["seats"]) == (32768, 4)  # the model is no longer
    assert run([*arguments, "--profile", "long", "--kv-cache-memory", "8MiB"]) == 1
    assert "give it" in capsys.readouterr().err
    assert run([*arguments, "--profile", "w4a16"]) == 2
    assert "'fast', 'long', 'huge'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "code", "message"),
    [
        ("0.6GiB", "engine/does_not_fit", "GiB are missing on 0.6 GiB"),
        ("32 blocks", "runtime/bad_input", "write it as 32GiB, 512MiB or 24GB"),
        ("0GB", "runtime/bad_input", "write it as 32GiB, 512MiB or 24GB"),
    ],
)
def test_cards_that_do_not_do(
    size: str, code: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter_bundle(tmp_path)
    assert run(["plan", "--model", str(tmp_path), "--gpu-memory", size]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert code in line
