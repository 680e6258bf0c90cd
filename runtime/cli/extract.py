"""`ostinato extract`: a bundle from a base and a tuned model, and whether it is that model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engine.bundle import Bundle, load_bundle
from engine.contract import Ask
from engine.rebase import rebase as run_rebase
from engine.records import ask_from_system_one
from runtime.cli import show
from runtime.cli.common import JsonFlag
from runtime.cli.show import Stages, Table, err, print_json
from runtime.decide import read_lines
from runtime.errors import BadInput

if TYPE_CHECKING:
    from engine.extract.compare import Finding
    from engine.extract.estimate import Range
    from engine.extract.verify import Verification

DIFFERS = 1
LARGEST_CHANGE = 0.02
"""Of a probability; the release's own answers in bfloat16 are up to 0.015 off those in float32."""

_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "float32": "float32"}
_SHOWN = 30


def extract(
    base: Annotated[
        Path | None, typer.Option(help="The base: config.json and weights.", metavar="DIR")
    ] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="The tuned model in the release's layout.", metavar="DIR"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The bundle to make.", metavar="BUNDLE")] = None,
    rank: Annotated[
        str, typer.Option(help="The adapter's common rank.", metavar="auto|N")
    ] = "auto",
    dtype: Annotated[
        str, typer.Option(help="Of the factors: bf16 or float32.", metavar="DTYPE")
    ] = "bf16",
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
    allow_residual: Annotated[
        bool,
        typer.Option("--allow-residual", help="Leave out what no adapter can hold, and report it."),
    ] = False,
    name: Annotated[str | None, typer.Option(help="What people will call the model.")] = None,
    rebase: Annotated[
        Path | None,
        typer.Option(
            help="Put this bundle's adapter, head and tokenizer on another --base of the same"
            " model, such as a quantized one.",
            metavar="BUNDLE",
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(help="Check this bundle against the tuned weights instead.", metavar="BUNDLE"),
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            help="With --verify: System One requests to answer with both, as `decide` reads them.",
            metavar="FILE.jsonl",
        ),
    ] = None,
    engine: Annotated[
        Literal["torch", "vllm"],
        typer.Option(
            help="With --verify: answer with the plain model, or through vLLM as a worker does."
            " A quantized base always goes through vLLM."
        ),
    ] = "torch",
    json: JsonFlag = False,
) -> int:
    """Make a bundle from a base and a tuned model: base, adapter, head and tokenizer.

    The same command goes on where a stopped run left off. The bundle holds a report of what was
    found. Exit code 1 if the tuned weights hold what no adapter can.

    Example: ostinato extract --base Qwen3.8-27B --tuned clef --out clef-bundle
    then: ostinato extract --verify clef-bundle --requests requests.jsonl --engine vllm
    and:  ostinato extract --rebase clef-bundle --base Qwen3.8-27B-W4A16 --out clef-w4a16
    """
    if dtype not in _DTYPES or device not in ("cpu", "cuda"):
        raise BadInput(f"--dtype {dtype} --device {device}: take bf16 or float32, cpu or cuda")
    if device == "cuda":
        _require_cuda()
    if verify is not None:
        asks = _asks(requests) if requests else []
        return _verify(load_bundle(verify), asks, tuned, engine, device, json=json)
    if rebase is not None:
        return _rebase(rebase, base, out, json=json)
    if base is None or tuned is None or out is None:
        raise BadInput("--base, --tuned and --out are needed, or --rebase or --verify")
    from engine.extract.job import Options, Refused
    from engine.extract.job import extract as run

    options = Options(
        rank=_rank(rank),
        dtype=_DTYPES[dtype],  # pyright: ignore[reportArgumentType]
        device=device,
        allow_residual=allow_residual,
        name=name,
    )
    try:
        with _Bars(quiet=json) as bars:
            bundle = run(base, tuned, out, options, bars.update, bars.estimate)
    except Refused as refused:
        if not json:
            _show_findings(refused.findings)
        raise
    _show_bundle(bundle, json=json)
    return 0


class _Bars(Stages):
    def estimate(self, left: Range) -> None:
        if not self.quiet:
            err.print(
                f"estimate: {_time(left.low)} to {_time(left.high)} from here", highlight=False
            )


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _rank(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 512:
        raise BadInput(f"--rank {text}: take auto, or 1 to 512, which is what vLLM applies")
    return int(text)


def _require_cuda() -> None:
    import importlib

    if not importlib.import_module("torch").cuda.is_available():
        raise BadInput("--device cuda: no GPU that torch can use; take --device cpu")


def _asks(path: Path) -> list[Ask]:
    asks: list[Ask] = []
    for line in read_lines(path):
        if line.error is not None:
            raise BadInput(f"{path}: {line.name}: {line.error}")
        asks.append(
            ask_from_system_one(
                line.request, form="joint", record="release", max_length=line.max_length
            )
        )
    return asks


def _show_findings(findings: list[Finding]) -> None:
    table = Table("tensor", "what", "error without it", box=None, pad_edge=False)
    for finding in findings[:_SHOWN]:
        table.add_row(finding.tensor, finding.what, f"{finding.error:.3%}")
    err.print(table)
    if len(findings) > _SHOWN:
        err.print(f"and {len(findings) - _SHOWN} more")


def _show_bundle(bundle: Bundle, *, json: bool) -> None:
    extraction = bundle.manifest.extraction
    assert extraction is not None
    worst = max((matrix.weight for matrix in extraction.matrices.values()), default=0.0)
    if json:
        print_json(
            {
                "bundle": str(bundle.path),
                "hash": bundle.hash,
                "rank": bundle.adapter_rank,
                "extraction": extraction,
            }
        )
        return
    show.out.print(
        f"{bundle.path}: {bundle.hash}, {len(extraction.matrices)} matrices at rank "
        f"{bundle.adapter_rank}, at most {worst:.3%} of a weight left out",
        soft_wrap=True,
        highlight=False,
    )
    for tensor, error in extraction.left.items():
        show.out.print(f"[yellow]left out[/]: {tensor} ({error:.3%})", highlight=False)
    show.out.print(f"report: {bundle.path}/report.md", soft_wrap=True, highlight=False)


def _rebase(rebase: Path, base: Path | None, out: Path | None, *, json: bool) -> int:
    if base is None or out is None:
        raise BadInput("--rebase needs the other --base and --out")
    with Stages(quiet=json) as stages:
        bundle = run_rebase(load_bundle(rebase), base, out, stages.update)
    manifest = bundle.manifest
    assert manifest.original is not None
    if json:
        print_json(
            {
                "bundle": str(bundle.path),
                "hash": bundle.hash,
                "quantization": manifest.quantization,
                "original": manifest.original,
            }
        )
        return 0
    show.out.print(
        f"{bundle.path}: {bundle.hash}, base {bundle.base} "
        f"({manifest.quantization or 'not quantized'}), adapter of {manifest.original.path}\n"
        "How much the answers change: ostinato extract --verify with --requests",
        soft_wrap=True,
        highlight=False,
    )
    return 0


def _verify(
    bundle: Bundle,
    asks: list[Ask],
    tuned: Path | None,
    engine: Literal["torch", "vllm"],
    device: str,
    *,
    json: bool,
) -> int:
    from engine.extract.recorded import record_answer
    from engine.extract.verify import verify_adapter

    with _Bars(quiet=json) as bars:
        found = verify_adapter(bundle, asks, bars.update, tuned=tuned, engine=engine, device=device)
    extraction = bundle.manifest.extraction
    assert extraction is not None
    worse = [
        name
        for name, error in found.matrices.items()
        if error.change > 1.05 * extraction.matrices[name].change + 1e-5
    ]
    answers = found.answers
    if answers is not None and found.engine == "torch" and not bundle.manifest.answer:
        record_answer(bundle)
    # what another base changes is reported; how much is too much is for the user to say
    judged = None if found.other_base else answers
    sound = not worse and (judged is None or judged.probability <= LARGEST_CHANGE)
    if json:
        print_json({"ok": sound, "worse": worse, "verification": found})
    else:
        _show_verification(found, worse)
    return 0 if sound else DIFFERS


def _show_verification(found: Verification, worse: list[str]) -> None:
    table = Table("matrix", "rank", "error of the change", "error of the weight", box=None)
    for name, error in found.matrices.items():
        mark = "[red]worse than recorded[/] " if name in worse else ""
        short = name.removeprefix("model.language_model.").removesuffix(".weight")
        table.add_row(mark + short, str(error.rank), f"{error.change:.3%}", f"{error.weight:.4%}")
    show.out.print(table)
    answers = found.answers
    if not found.matrices:
        show.out.print("[yellow]matrices not measured[/]: the base they were made for is not here")
    if answers is None:
        show.out.print(f"[yellow]answers not compared[/]: {found.skipped}")
        return
    how = "through vLLM" if found.engine == "vllm" else "in plain torch"
    if found.other_base:
        how += f" on another base ({found.quantization or 'not quantized'})"
    states = "" if answers.hidden is None else f"states of the fixed one {answers.hidden:.3%} off, "
    within = found.other_base or answers.probability <= LARGEST_CHANGE
    show.out.print(
        f"{answers.records} records, {answers.questions} questions {how}: {states}logits at most "
        f"{answers.logit:.4f} off, [{'green' if within else 'red'}]probabilities at most "
        f"{answers.probability:.4f}[/], same choice in {answers.agreed} "
        f"({answers.agreed / answers.questions:.1%})",
        highlight=False,
        soft_wrap=True,
    )
