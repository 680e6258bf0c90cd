"""Bundles of the tiny checkpoint with known answers; see `tests/oracle/README.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.adapter import write_adapter
from engine.bundle import Bundle, base_hash, write_manifest
from engine.contract import Ask
from engine.records import ask_from_system_one

ORACLE = Path(__file__).parents[1] / "oracle"
SHORT = ["three_types", "state_json", "choice_null_descriptions"]
"""Names of a few cases that take no time."""


def tuned_bundle(folder: Path) -> Bundle:
    """Make the bundle whose base holds the tuned weights; there is no adapter."""
    folder.mkdir(parents=True, exist_ok=True)
    clef = ORACLE / "clef"
    return write_manifest(folder, name="oracle tuned", base=clef, head=clef, arbitrary=True)


def adapter_bundle(folder: Path) -> Bundle:
    """Make the bundle of the base and the true factors, of rank 8."""
    from safetensors.torch import load_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = load_file(ORACLE / "truth" / "low_rank.safetensors")
    modules = sorted({name.rsplit(".lora_", 1)[0] for name in tensors})
    factors = {
        module: (tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"])
        for module in modules
    }
    base = ORACLE / "base"
    write_adapter(folder / "adapter", factors, rank=8, base=base_hash(base))
    return write_manifest(
        folder,
        name="oracle base and adapter",
        base=base,
        head=ORACLE / "clef",
        adapter=folder / "adapter",
        arbitrary=True,
    )


def oracle_cases() -> list[dict[str, Any]]:
    """Give the requests, each with its `name`, `tags` and perhaps `max_length`."""
    lines = (ORACLE / "requests.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def oracle_answers() -> dict[str, Any]:
    """Give what the release's code answers, by case name."""
    return json.loads((ORACLE / "expected.json").read_text(encoding="utf-8"))


def oracle_asks(names: list[str] | None = None) -> list[Ask]:
    """Give the cases of these names, or all that a server answers, as joint asks."""
    answers = oracle_answers()
    return [
        ask_from_system_one(
            case["request"], form="joint", record="release", max_length=case.get("max_length")
        )
        for case in oracle_cases()
        if "response" in answers[case["name"]]
        and (case["name"] in names if names else "quirk" not in case["tags"])
    ]
