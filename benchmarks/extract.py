"""Time and memory of `ostinato extract` on matrices of the 27B's size.

    python -m benchmarks.extract [--device cuda] [--rows 17408 --columns 5120 --matrices 4]

The weights are random, the change of rank 256 and rounded to bfloat16, as in the release. The whole
job at the 27B is 186 matrices of 9.13e9 values, about 102 of the largest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.machine import machine_line
from engine.extract.estimate import Range
from engine.extract.job import Options, extract

RANK = 256


def main() -> None:
    """Make the weights, extract, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=17408)
    parser.add_argument("--columns", type=int, default=5120)
    parser.add_argument("--matrices", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where to put the weights; default: /tmp")
    arguments = parser.parse_args()
    shape = (arguments.rows, arguments.columns)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        # in another process, so that its memory does not count
        maker = multiprocessing.get_context("spawn").Process(
            target=write_pair, args=(folder, shape, arguments.matrices, arguments.device)
        )
        maker.start()
        maker.join()
        estimates: list[tuple[float, Range]] = []
        marks: list[float] = []

        def on_progress(stage: str, done: int, total: int, note: str) -> None:
            if stage.startswith("factoring"):
                marks.append(time.monotonic())

        started = time.monotonic()
        bundle = extract(
            folder / "base",
            folder / "tuned",
            folder / "bundle",
            Options(device=arguments.device),
            on_progress,
            lambda left: estimates.append((time.monotonic(), left)),
        )
        ended = time.monotonic()
    each = [after - before for before, after in itertools.pairwise(marks)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bound = 3 * 4 * arguments.rows * arguments.columns + 2**30
    extraction = bundle.manifest.extraction
    assert extraction is not None
    print(f"{arguments.matrices} matrices {shape[0]} x {shape[1]} on {arguments.device}")
    print(machine_line())
    print(f"rank found {bundle.adapter_rank}, all in {ended - started:.1f} s")
    print("each: " + ", ".join(f"{seconds:.2f} s" for seconds in each))
    print(f"error of a change: {max(error.change for error in extraction.matrices.values()):.4f}")
    for at, left in estimates:
        truth = ended - at
        span = f"{left.low:.1f} to {left.high:.1f}"
        print(f"estimate {left.seconds:.1f} s ({span}), truth {truth:.1f} s")
    print(f"peak memory {peak / 2**30:.2f} GiB, bound {bound / 2**30:.2f} GiB")


def write_pair(folder: Path, shape: tuple[int, int], matrices: int, device: str) -> None:
    """Write a base and a tuned model that hold these matrices and a head of the tiniest size."""
    generator = torch.Generator(device).manual_seed(1)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device)

    text = {"hidden_size": 8, "vocab_size": 8, "max_position_embeddings": 8}
    for part in ("base", "tuned"):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text(json.dumps({"text_config": text}))
        (folder / part / "tokenizer.json").write_text(
            json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": []})
        )
    head = dict.fromkeys(("width", "routing_layers", "layers", "heads", "feedforward"), 1)
    (folder / "tuned" / "joint_head_config.json").write_text(json.dumps({"hidden_size": 8} | head))
    save_file({"scale": torch.zeros(1)}, folder / "tuned" / "joint_head.safetensors")
    for index in range(matrices):
        name = f"model.language_model.layers.{index}.mlp.up_proj.weight"
        weight = normal(*shape).mul_(0.02).bfloat16()
        change = normal(shape[0], RANK) @ normal(RANK, shape[1])
        tuned = (weight.float() + change.mul_(0.002 / RANK**0.5)).bfloat16()
        for part, tensor in (("base", weight), ("tuned", tuned)):
            save_file({name: tensor.cpu()}, folder / part / f"model-{index:05}.safetensors")


if __name__ == "__main__":
    main()
