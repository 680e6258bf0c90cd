"""Portable files: read and written whole, compressed where the name says so."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

from store.errors import BadExport, LogUnavailable


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read; one whose name ends in `.zst` is decompressed.

    Raises:
        LogUnavailable: It cannot be read.
        BadExport: It is not compressed as its name says.
    """
    try:
        with path.open("rb") as raw:
            if path.suffix == ".zst":
                yield io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
            else:
                yield raw
    except OSError as error:
        raise LogUnavailable(f"{path} cannot be read ({error.strerror}); check the path") from error
    except zstandard.ZstdError as error:
        raise BadExport(f"{path} is not compressed as its name says ({error})") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of `path` once everything is written.

    Raises:
        LogUnavailable: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as raw:
            if path.suffix == ".zst":
                compressor = zstandard.ZstdCompressor(write_checksum=True)
                with compressor.stream_writer(raw, closefd=False) as file:
                    yield file
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        draft.replace(path)
    except OSError as error:
        raise LogUnavailable(
            f"{path} cannot be written ({error.strerror}); check folder, permissions and space"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
