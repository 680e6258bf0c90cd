"""Make or refresh the project's own virtual environment.

    python3 tools/setup.py [--dev]

Creates `.venv`, installs Ostinato with vLLM for this machine (the CUDA build where an NVIDIA driver
is found, else the CPU build) and, with --dev, what the tests need. What is already set up is
skipped; two calls at once wait for one another. Only the standard library is used here.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "ostinato-setup.json"

JAVASCRIPT_CLIENT = "@typesafe-ai/sdk@0.6.0"

SCHEMAS_MODULE = "ostinato_torchvision_schemas"
SCHEMAS_SOURCE = '''\
"""Written by Ostinato's tools/setup.py because `import torchvision` failed in this environment.

PyPI's torchvision is compiled for CUDA. Beside a CPU build of torch its compiled operators do not
load, and its Python code then fails on operators that were never declared. Declaring their schemas
first is enough: vLLM imports torchvision for image models only, and none of these operators is
called for text.
"""

import importlib.abc
import sys


class _Declare(importlib.abc.MetaPathFinder):
    """Declares the schemas when torchvision is first imported; costs nothing otherwise."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            sys.modules[__name__].library = library  # dropped schemas would be undeclared again
        return None


sys.meta_path.insert(0, _Declare())
'''


def main() -> None:
    """Set the environment up, or say why it cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dev", action="store_true", help="also install what the tests need")
    dev = parser.parse_args().dev
    if sys.version_info < (3, 11):  # noqa: UP036  the caller's Python, not the project's
        sys.exit(f"Ostinato needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        set_up(dev=dev)


def set_up(*, dev: bool) -> None:
    """Install what is missing; a second call finds its stamp and returns at once."""
    build = "gpu" if Path("/proc/driver/nvidia/version").exists() else "cpu"
    wanted = {
        "build": build,
        "python": sys.version.split()[0],
        "sources": hashlib.sha256(
            (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
        ).hexdigest(),
    }
    found = json.loads(STAMP.read_text()) if STAMP.exists() else {}
    if all(found.get(key) == value for key, value in wanted.items()) and found["dev"] >= dev:
        return
    if not PYTHON.exists():
        say(f"making {VENV.relative_to(ROOT)}")
        venv.create(VENV, with_pip=True)
    pip("--upgrade", "pip")
    extras = ["openspiel", "poker", "reports", build] + ["dev"] * (dev or found.get("dev", False))
    say(f"installing Ostinato with {', '.join(extras)} (a few minutes the first time)")
    pip("--editable", f".[{','.join(extras)}]")
    repair()
    if "dev" in extras:
        install_javascript_client()
    STAMP.write_text(json.dumps(wanted | {"dev": "dev" in extras}))


def pip(*arguments: str) -> None:
    """Install with the environment's pip, or end with what pip said and the usual remedy."""
    # Progress bars of a dozen wheels would hide what matters; errors are shown whole.
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(
            "installation failed, see above. If it names torch 2.13.0+cpu: vLLM's CPU build needs"
            " PyTorch's CPU wheels; name PyTorch's index for them in PIP_EXTRA_INDEX_URL"
            " (the PyTorch install page shows it) and run the command again."
        )


def install_javascript_client() -> None:
    """Fetch the API's official JavaScript client for its test, where there is a Node to run it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        say(f"no Node here: the test with {JAVASCRIPT_CLIENT} will be skipped")
        return
    command = [
        "npm",
        "install",
        "--prefix",
        str(VENV / "js"),
        "--silent",
        "--no-audit",
        "--no-fund",
    ]
    done = subprocess.run([*command, JAVASCRIPT_CLIENT], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        say(f"{JAVASCRIPT_CLIENT} could not be fetched, its test will be skipped: {last}")


def repair() -> None:
    """Mend the one known misfit of PyPI's wheels beside a CPU torch; elsewhere change nothing."""
    site = next((VENV / "lib").glob("python3*/site-packages"))
    module, pth = site / f"{SCHEMAS_MODULE}.py", site / f"{SCHEMAS_MODULE}.pth"
    for path in (module, pth):
        path.unlink(missing_ok=True)
    if "torchvision::nms" in import_error("torchvision"):
        module.write_text(SCHEMAS_SOURCE)
        pth.write_text(f"import {SCHEMAS_MODULE}\n")
        say(
            "repaired: this torchvision was not built for this torch; its two missing operator"
            f" declarations now come from {module.relative_to(ROOT)}"
        )
    unusable = [name for name in ("torchaudio", "torchcodec") if import_error(name)]
    installed = [name for name in unusable if list(site.glob(f"{name}-*.dist-info"))]
    if installed:
        subprocess.run(
            [str(PYTHON), "-m", "pip", "uninstall", "--quiet", "--yes", *installed], check=True
        )
        say(f"removed: {', '.join(installed)} cannot be loaded beside this torch; not needed here")


def import_error(name: str) -> str:
    """Give what importing a module in the environment fails with, or an empty text."""
    code = f"import torch, {name}"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(PYTHON), "-c", code], capture_output=True, text=True, env=environment
    )
    return done.stderr if done.returncode else ""


def say(text: str) -> None:
    """Tell the person at the terminal what is going on."""
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    main()
