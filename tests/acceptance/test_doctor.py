"""`ostinato doctor`, and what importing costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.checkup import Check
from tests.support.bundles import tuned_bundle
from tests.support.command import Command


def test_it_looks_at_everything(ostinato: Command, tmp_path: Path):
    done = ostinato("doctor", "--model", tuned_bundle(tmp_path / "bundle").path, "--json")
    document = done.document
    assert set(document) == {"checks", "ok"}
    checks = {check["name"]: check for check in document["checks"]}
    assert {"Python", "SQLite", "nats-server", "vLLM", "packages", "data folder"} <= set(checks)
    for check in checks.values():
        assert set(check) == {"name", "status", "detail", "remedy"}
        assert check["status"] == "ok" or check["remedy"]
    for name in ("model", "base", "head", "adapter", "tokenizer", "release", "memory"):
        assert checks[name]["status"] == "ok"
    assert document["ok"] == all(check["status"] != "error" for check in checks.values())
    assert done.code == (0 if document["ok"] else 1)


def test_a_broken_bundle_is_named(ostinato: Command, tmp_path: Path):
    bundle = tuned_bundle(tmp_path / "bundle").path
    manifest = (bundle / "bundle.json").read_text()
    (bundle / "bundle.json").write_text(re.sub(r'("sha256": ")....', r"\g<1>0000", manifest))
    done = ostinato("doctor", "--model", bundle)
    assert done.code == 1
    assert "is not what the manifest says" in " ".join(done.stdout.split())


@pytest.mark.parametrize("module", ["engine", "engine.client", "engine.queue", "runtime.cli"])
def test_no_model_library_is_imported(module: str):
    program = f"import sys, {module}; print('torch' in sys.modules, 'vllm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False False"), done


def test_a_narrow_terminal_hides_nothing_and_brackets_are_shown(here, monkeypatch):
    remedy = "pip install 'ostinato[cpu]'"
    detail = "/a/long/path/without/any/place/to/break/it/at"
    found = [Check(name="vLLM", status="error", detail=detail, remedy=remedy)]
    monkeypatch.setattr("runtime.cli.doctor.examine", lambda **_: found)
    monkeypatch.setenv("COLUMNS", "40")
    done = here("doctor")
    shown = "".join(done.stdout.split())
    assert done.code == 1
    assert "…" not in shown
    monkeypatch.setenv("COLUMNS", "120")
    assert remedy in here("doctor").stdout
