"""A disk that is full or may not be written is a typed error; nothing acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from store.sqlite import open_log

APPENDER = Path(__file__).with_name("appender.py")


def run_until_full(*command: str | Path) -> tuple[list[int], str]:
    """Give the versions that were acknowledged, and the error."""
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    lines = said.splitlines()
    (error,) = (line for line in lines if line.startswith("error "))
    return [int(line.split()[1]) for line in lines if line.startswith("m ")], error


async def check_nothing_lost(path: Path, acknowledged: list[int]) -> None:
    assert len(acknowledged) > 20
    log = open_log(path)
    assert len(log.read("m")) == acknowledged[-1]
    await log.close()


async def test_a_file_that_may_not_grow_is_an_error_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    acknowledged, error = run_until_full(sys.executable, APPENDER, "limited", path)
    assert "log.db: the disk refused to read or write; check its space" in error
    await check_nothing_lost(path, acknowledged)


async def test_a_full_disk_is_an_error_and_no_more(tmp_path: Path) -> None:
    # a mount of its own name space is gone with its process
    mount = f"mount -t tmpfs -o size=2m none '{tmp_path}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here (needs root)")
    copy = TemporaryDirectory()
    script = f"{mount} && '{sys.executable}' '{APPENDER}' small '{tmp_path}/log.db'"
    script += f" && cp '{tmp_path}/log.db' '{copy.name}'"
    acknowledged, error = run_until_full("unshare", "-m", "sh", "-c", script)
    assert "log.db: the disk is full; free some space" in error
    await check_nothing_lost(Path(copy.name) / "log.db", acknowledged)
    copy.cleanup()
