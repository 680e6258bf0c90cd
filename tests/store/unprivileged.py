"""Opens logs as somebody who may not write; run by test_disk, since root may write everywhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from store.errors import StoreError
from store.sqlite import open_log

NOBODY = 65534


async def attempt(path: Path, *, read_only: bool) -> None:
    """Say what opening and reading a log comes to."""
    try:
        log = open_log(path, read_only=read_only)
        print(f"{path.name} read {len(log.read('m'))}")
        await log.close()
    except StoreError as error:
        print(f"{path.name} {type(error).__name__} {error}")


async def main(folder: Path) -> None:
    await open_log(folder / "warm.db").close()  # imports all that nobody may not be able to read
    if os.getuid() == 0:
        os.setuid(NOBODY)
    for path in (folder / "shut" / "folder.db", folder / "file.db"):
        await attempt(path, read_only=True)
        await attempt(path, read_only=False)
    await attempt(folder / "secret.db", read_only=True)


asyncio.run(main(Path(sys.argv[1])))
