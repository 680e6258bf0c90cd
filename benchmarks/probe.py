"""What the disk costs at this minute; every figure that waits for a disk stands beside it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

BLOCK = bytes(4096)


def fdatasync_probe(folder: Path, *, count: int = 50) -> float:
    """Give the median milliseconds of writing 4 KiB and syncing them, in a folder's file system."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        times: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000
