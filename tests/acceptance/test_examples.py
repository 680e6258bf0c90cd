"""The example files of the documentation name only what there is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer.main
import yaml

from engine.worker import GRACE_S
from runtime.cli.app import app
from runtime.settings import load_settings

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
UNIT = EXAMPLES / "ostinato-worker.service"


def check_command(command: Sequence[str], environment: dict[str, str]) -> None:
    """See that there is this command with these flags, and that the variables are settings."""
    program, name, *arguments = command
    assert Path(program).name == "ostinato"
    known = typer.main.get_command(app).commands[name]  # pyright: ignore[reportAttributeAccessIssue]
    flags = {flag for parameter in known.params for flag in parameter.opts}
    assert {word for word in arguments if word.startswith("-")} <= flags
    load_settings(environment=environment)


def unit() -> dict[str, str]:
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_the_unit_starts_a_worker_and_gives_it_time_to_end() -> None:
    options = unit()
    variables = re.findall(r"(OSTINATO_\w+)=(\S+)", UNIT.read_text())
    check_command(shlex.split(options["ExecStart"]), dict(variables))
    assert {name for name, _ in variables} == {"OSTINATO_NATS", "OSTINATO_METRICS_PORT"}
    assert options["KillSignal"] == "SIGTERM"
    assert int(options["TimeoutStopSec"]) > 2 * GRACE_S
    assert options["Restart"] == "on-failure"  # an engine that died ends the worker with code 1


def complaints(folder: Path, text: str) -> str:
    """Give what systemd says of a unit; only its paths and its user are others."""
    text = text.replace("/srv/ostinato/.venv/bin/ostinato", shutil.which("true") or "")
    text = text.replace("User=ostinato\n", "").replace("/srv/ostinato", str(folder))
    (folder / UNIT.name).write_text(text)
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", folder / UNIT.name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stderr
    return "\n".join(line for line in said.splitlines() if UNIT.name in line)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    broken = UNIT.read_text().replace("Restart=on-failure", "Restart=sometimes")
    if not complaints(tmp_path, broken):
        pytest.skip("systemd-analyze finds no fault here, whatever there is")
    assert complaints(tmp_path, UNIT.read_text()) == ""


def test_the_compose_file_names_what_there_is() -> None:
    composed = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    nats, worker = composed["services"]["nats"], composed["services"]["worker"]
    assert (
        nats["environment"]
        == re.findall(r"\$(NATS_\w+)", (EXAMPLES / "nats.conf").read_text())[-2:]
    )
    check_command(worker["command"], worker["environment"])
    url = worker["environment"]["OSTINATO_NATS"]
    user, password = re.fullmatch(r"nats://(\w+):\$\{(\w+)\}@nats:4222", url).groups()  # pyright: ignore
    assert user == "worker"
    assert password in nats["environment"]
    assert float(worker["stop_grace_period"].removesuffix("s")) > 2 * GRACE_S
    configuration, data = (volume.split(":") for volume in nats["volumes"])
    assert (EXAMPLES / configuration[0]).is_file()
    assert nats["command"] == ["--config", configuration[1]]
    assert set(composed["volumes"]) == {data[0]}
    assert f'store_dir: "{data[1]}"' in (EXAMPLES / "nats.conf").read_text()
    assert worker["depends_on"] == ["nats"]
