from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli.app import run


def test_only_releases_are_fetched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["fetch", "gpt", "--out", str(tmp_path / "x")]) == 1
    assert "gpt: no such release; take clef or clef-flash" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_an_unreachable_hub_is_one_line_and_a_code(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    command = [sys.executable, "-c", "from runtime.cli import main; main()", "fetch", "clef"]
    nobody = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "no_proxy": "*"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "clef")],
        capture_output=True,
        text=True,
        env=os.environ | nobody,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Cloudflare/clef: the hub cannot be reached" in line
    assert line.endswith("[engine/hub_unavailable]")
