"""Packages with games or agents, as pip leaves them, and the templates that people begin with."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def installed(folder: Path, template: Path, group: str, *, broken: str, entry: str) -> str:
    """Give a search path with two packages on it: a template, and `broken` with what is wrong.

    Args:
        folder: Where they are put.
        template: The template's folder; its module has the name that its project has.
        group: Of entry points: "ostinato.games" or "ostinato.agents".
        broken: The other module's code.
        entry: The function in it that the entry point names.
    """
    folder.mkdir()
    project = tomllib.loads((template / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    shutil.copy(template / f"{name}.py", folder)
    (folder / "broken.py").write_text(broken)
    points = project["entry-points"][group] | {"broken": f"broken:{entry}"}
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return os.pathsep.join([str(folder), str(ROOT), *sys.path[1:2]])


def check_shown(code: Path, page: str, *, most: int) -> None:
    """Check that a page of the docs shows a template, says how long it is, and is short."""
    text, shown = (ROOT / "docs" / page).read_text(), code.read_text()
    assert f"```python\n{shown}```" in text
    lines = sum(bool(line.strip()) for line in shown.splitlines())
    assert lines <= most
    assert f"takes {lines} lines" in text
