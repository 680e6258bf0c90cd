from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.cli.main import run
from tests.support.bundles import adapter_bundle


def test_a_plan_is_a_table_with_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter_bundle(tmp_path)
    arguments = ["plan", "--model", str(tmp_path), "--gpu-memory"]
    assert run([*arguments, "2GiB"]) == 0
    shown = capsys.readouterr().out
    for part in ("weights", "adapter", "head features", "KV cache", "graphs", "█"):
        assert part in shown
    assert "up to 32,768 tokens" in shown
    assert run([*arguments, "2GB", "--json", "--kv-dtype", "fp8"]) == 0
    assert json.loads(capsys.readouterr().out)["context"] == 32768


@pytest.mark.parametrize(
    ("size", "code", "message"),
    [
        ("0.6GiB", "engine/does_not_fit", "GiB are missing on 0.6 GiB"),
        ("32", "runtime/bad_input", "write it as 32GiB or 24GB"),
        ("0GB", "runtime/bad_input", "write it as 32GiB or 24GB"),
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
