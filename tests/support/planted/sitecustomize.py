"""Breaks the engine's next step on request: Python imports this at its start, from PYTHONPATH.

Nobody else has to know: the folder that `PLANTED` names has a file `fault` with the error to
raise, which is raised once; `starts` in it gets a line for each engine.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["PLANTED"])
WORKER = "engine.llm.worker"


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != WORKER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_plant(module: Any) -> None:
            load(module)
            plant(module.DecisionWorker)

        spec.loader.exec_module = load_and_plant
        return spec


def plant(worker: Any) -> None:
    import torch

    execute = worker.execute_model
    with (FOLDER / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")

    def execute_or_fail(self: Any, *args: Any, **options: Any) -> Any:
        fault = FOLDER / "fault"
        if fault.exists():
            kind, _, message = fault.read_text().partition(": ")
            fault.unlink()
            raise getattr(torch, kind, RuntimeError)(message)
        return execute(self, *args, **options)

    worker.execute_model = execute_or_fail


sys.meta_path.insert(0, Finder())
