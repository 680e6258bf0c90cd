"""The command `ostinato`."""

from __future__ import annotations

from runtime.cli.main import main

__all__ = ["main"]
