"""A disk that is full or may not be written is a typed error; nothing acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from store.sqlite import open_log
from store.testing import whole_match

APPENDER = Path(__file__).with_name("appender.py")
UNPRIVILEGED = Path(__file__).with_name("unprivileged.py")


def run_until_full(*command: str | Path) -> tuple[list[int], str]:
    """Give the versions that were acknowledged, and the error."""
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=110).stdout
    lines = said.splitlines()
    (error,) = (line for line in lines if line.startswith("error "))
    return [int(line.split()[1]) for line in lines if line.startswith("m ")], error


async def check_nothing_lost(
    path: Path, acknowledged: list[int], *, under_way: Sequence[int] = ()
) -> None:
    assert len(acknowledged) > 20
    log = open_log(path)
    assert len(log.read("m")) - acknowledged[-1] in (0, *under_way)
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


async def test_a_disk_that_becomes_read_only_is_an_error_and_no_more(tmp_path: Path) -> None:
    image, mounted = tmp_path / "image", tmp_path / "disk"
    mounted.mkdir()
    script = f"mkfs.ext4 -q '{image}' 16M && mount -o loop '{image}' '{mounted}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True).returncode != 0:
        pytest.skip("no disk image can be mounted here (needs root and a loop device)")
    copy = tmp_path / "copy"
    copy.mkdir()
    script = f"mount -o loop '{image}' '{mounted}'"
    script += f" && '{sys.executable}' '{APPENDER}' remounted '{mounted}/log.db'"
    script += f" && umount '{mounted}' && mount -o loop '{image}' '{mounted}'"
    script += f" && cp '{mounted}'/log.db* '{copy}'"
    acknowledged, error = run_until_full("unshare", "-m", "sh", "-c", script)
    assert "log.db: the disk refused to read or write; check its space" in error
    # what was under way when the disk failed may be there or not, as a whole
    await check_nothing_lost(copy / "log.db", acknowledged, under_way=[1 + acknowledged[-1] % 3])


async def test_what_may_not_be_written_can_be_read_and_says_so() -> None:
    # not under tmp_path, which only its owner may enter
    with TemporaryDirectory() as name:
        folder = Path(name)
        shut = folder / "shut"
        shut.mkdir()
        for path in (shut / "folder.db", folder / "file.db", folder / "secret.db"):
            log = open_log(path)
            await log.append("m", whole_match(), expected=0)
            await log.close()
            path.with_name(f"{path.name}.lock").unlink()
        (folder / "file.db").chmod(0o444)
        (folder / "secret.db").chmod(0o000)
        shut.chmod(0o555)
        folder.chmod(0o777)
        said = subprocess.run(
            [sys.executable, UNPRIVILEGED, folder], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        shut.chmod(0o755)
    assert said[0] == "folder.db read 5"
    assert "LogUnavailable" in said[1]
    assert "folder.db.lock cannot be made (Permission denied)" in said[1]
    assert said[2] == "file.db read 5"
    assert "LogUnavailable" in said[3]
    assert "file.db: the file cannot be written; check its permissions" in said[3]
    assert "LogUnavailable" in said[4]
    assert "secret.db: the file cannot be opened; check" in said[4]
