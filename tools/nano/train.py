"""Train nano: the base, then adapter and head, then the release's layout.

    python -m tools.nano.train measure --data DATA
    python -m tools.nano.train base    --data DATA --run RUN --minutes 9
    python -m tools.nano.train decide  --data DATA --run RUN --minutes 9
    python -m tools.nano.train write   --data DATA --run RUN --out OUT

DATA is what `tools.nano.generate` made. The same command goes on where it stopped; RUN holds the
checkpoints, OUT/base and OUT/tuned are what `ostinato extract` takes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tools.nano import checkpoint
from tools.nano.batches import BUCKETS, collate
from tools.nano.dataset import TEST, TOKENIZER, TRAIN, Dataset, RecordData
from tools.nano.release import vocabulary, write_base, write_tuned
from tools.nano.sizes import RECIPES, Recipe, parameters
from tools.nano.stages import BaseStage, DecideStage, optimizer_of
from tools.nano.training import train

RECORD: Final = "record.json"
_RATES: Final = {"base": 2e-3, "decide": 1e-3}


def main() -> int | str:
    """Run one command; give what went wrong."""
    try:
        return _run()
    except ValueError as error:
        return str(error)


def _run() -> int:
    arguments = _parser().parse_args()
    recipe = RECIPES[arguments.recipe]
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    if arguments.command == "measure":
        for line in measure_steps(recipe, arguments.data, arguments.device):
            print(line, flush=True)
        return 0
    if arguments.command == "write":
        write(recipe, arguments.data, arguments.run, arguments.out)
        return 0
    record = run_stage(
        arguments.command,
        recipe,
        arguments.data,
        arguments.run,
        {
            "recipe": arguments.recipe,
            "steps": arguments.steps,
            "tokens": arguments.tokens,
            "rate": arguments.rate or _RATES[arguments.command],
            "longest": arguments.longest,
            "seed": arguments.seed,
            "answer_weight": arguments.answer_weight,
            "test_every": arguments.test_every,
            "save_every": arguments.save_every,
        },
        minutes=arguments.minutes,
        device=arguments.device,
        start=arguments.start,
    )
    done = record["step"] == record["options"]["steps"]
    print("done" if done else f"stopped at step {record['step']}; the same command goes on")
    return 0


def run_stage(
    name: str,
    recipe: Recipe,
    folder: Path,
    run: Path,
    options: dict[str, Any],
    *,
    minutes: float,
    device: str,
    start: Path | None = None,
) -> dict[str, Any]:
    """Train a stage, or go on with it, and write what is known of it into the run's folder.

    With `start`, another run's folder, it begins with the weights that the stage has there; the
    record then holds that run's record too.
    """
    data, test = Dataset(folder / TRAIN), Dataset(folder / TEST)
    rows = vocabulary(folder / TOKENIZER)
    torch.manual_seed(options["seed"])
    stage = (
        BaseStage(recipe, rows)
        if name == "base"
        else DecideStage(recipe, rows, _finished(run, "base")["weights"])
    )
    run.mkdir(parents=True, exist_ok=True)
    before: dict[str, Any] | None = None
    if start is not None:
        stage.module.load_state_dict(_finished(start, name)["weights"], strict=False)
        before = json.loads((start / f"{name}-{RECORD}").read_text())
        options = options | {"start": before["data_hash"]}
    record = train(
        stage,
        data,
        test,
        run,
        options,
        minutes=minutes,
        device=device,
        tell=lambda text: print(text, flush=True),
    )
    about = {
        "data": data.about,
        "data_hash": data.hash,
        "test_hash": test.hash,
        "parameters": parameters(recipe, rows),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "device": _device_name(device),
        "stage": record,
        "before": before,
    }
    (run / f"{name}-{RECORD}").write_text(json.dumps(about, indent=1) + "\n")
    return record


def write(recipe: Recipe, folder: Path, run: Path, out: Path) -> None:
    """Write base and tuned model in the release's layout."""
    base = _finished(run, "base")["weights"]
    decided = _finished(run, "decide")["weights"]
    write_base(out / "base", recipe, base, folder / TOKENIZER)
    write_tuned(out / "tuned", recipe, base, decided, folder / TOKENIZER)
    print(f"{out}/base and {out}/tuned: ostinato extract --base ... --tuned ... --out BUNDLE")


def _finished(run: Path, stage: str) -> dict[str, Any]:
    state = checkpoint.load(run / stage)
    if state is None or state["record"]["step"] < state["record"]["options"]["steps"]:
        raise SystemExit(f"{run / stage}: this stage is not finished; run it first")
    return state


def measure_steps(recipe: Recipe, folder: Path, device: str) -> Iterator[str]:
    """Say what one training step costs at 512 and at 16,000 tokens, by stage.

    On a CPU that is processor time, which others on the same machine change less.
    """
    data = Dataset(folder / TRAIN)
    rows = vocabulary(folder / TOKENIZER)
    clock = time.process_time if device == "cpu" else time.perf_counter
    torch.manual_seed(1)
    base = BaseStage(recipe, rows)
    weights = {name: tensor.detach().clone() for name, tensor in base.module.state_dict().items()}
    decide = DecideStage(recipe, rows, weights)
    numbers = ((512, 1), (16_000, 1)) if device == "cpu" else ((512, 128), (16_000, 4))
    for stage in (base, decide):
        stage.module.to(device)
        optimizer = optimizer_of(stage.module, rate=1e-4)
        for tokens, number in numbers:
            batch = collate([_stretched(data, tokens)] * number, answers=stage.answers).to(device)
            times: list[float] = []
            for _ in range(1 if device == "cpu" and tokens > 512 else 3):
                started = clock()
                with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                    loss = stage.loss(batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                float(loss.detach())  # waits for the device
                times.append(clock() - started)
            least = min(times)
            yield (
                f"{stage.name}: {number} x {batch.ids.shape[1]} tokens: {1000 * least:,.0f} ms a "
                f"step, {batch.ids.numel() / least:,.0f} tokens/s ({_device_name(device)})"
            )


def _stretched(data: Dataset, tokens: int) -> RecordData:
    """Give a record with questions, its state filled up to so many tokens."""
    index = int(np.argmax((data.game_of < len(data.games)) & (data.lengths < tokens)))
    record = data.record(index)
    more = tokens - len(record.input_ids)
    ids = np.concatenate([record.input_ids[:1].repeat(more), record.input_ids])
    fields = [
        each._replace(
            question=(each.question[0] + more, each.question[1] + more),
            options=each.options + more,
        )
        for each in record.fields
    ]
    return record._replace(input_ids=ids, fields=fields)


def _device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {torch.get_num_threads()} thread"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "base", "decide", "write"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="nano")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after so many")
    parser.add_argument("--steps", type=int, default=6000, help="of the whole stage")
    parser.add_argument("--tokens", type=int, default=65536, help="of a batch")
    parser.add_argument("--longest", type=int, default=BUCKETS[-1], help="record to learn from")
    parser.add_argument("--start", type=Path, help="a run whose weights of the stage to begin with")
    parser.add_argument("--rate", type=float, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answer-weight", type=float, default=5.0)
    parser.add_argument("--test-every", type=int, default=500, help="steps")
    parser.add_argument("--save-every", type=int, default=200, help="steps")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
