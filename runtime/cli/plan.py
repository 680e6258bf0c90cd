"""`ostinato plan`: what a GPU holds of a bundle, before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from engine.bundle import load_bundle
from engine.plan import GIB, Plan, draft_size, plan, sizes_of
from runtime.cli import show
from runtime.cli.common import JsonFlag
from runtime.errors import BadInput

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(GiB|GB)", re.IGNORECASE)
_BAR = 60  # characters


def plan_command(
    model: Annotated[Path, typer.Option(help="The bundle.", metavar="BUNDLE")],
    gpu_memory: Annotated[str, typer.Option(help="Of the card: 32GiB, 24GB.", metavar="SIZE")],
    profile: Annotated[
        Literal["stored", "fp8", "w4a16"],
        typer.Option(help="The layers' matrices as stored, or as if quantized to 8 or 4 bits."),
    ] = "stored",
    kv_dtype: Annotated[
        Literal["bf16", "fp8"], typer.Option(help="Number format of keys and values.")
    ] = "bf16",
    draft: Annotated[
        Path | None, typer.Option(help="A draft model's folder.", metavar="DIR")
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Show what a card holds: weights, adapter, head, cache, and how much context that is.

    Nothing is loaded. Exit code 1 if the model does not fit, with what to change.

    Example: ostinato plan --model clef-bundle --gpu-memory 32GiB --profile w4a16
    """
    memory = _bytes(gpu_memory)
    sizes = sizes_of(load_bundle(model), profile=profile, kv_dtype=kv_dtype)
    laid_out = plan(sizes, memory, draft=draft_size(draft) if draft else 0)
    if json:
        show.print_json(laid_out)
    else:
        _show(laid_out, memory)
    return 0


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or not float(match[1]):
        raise BadInput(f"--gpu-memory {text}: write it as 32GiB or 24GB")
    return int(float(match[1]) * (GIB if match[2].lower() == "gib" else 10**9))


def _show(laid_out: Plan, memory: int) -> None:
    table = Table("part", "GiB", "", "where the figure is from", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for item in laid_out.items:
        bar = "█" * round(_BAR * item.bytes / memory)
        table.add_row(item.name, f"{item.bytes / GIB:.2f}", bar, item.source)
    show.out.print(table)
    show.out.print(
        f"Cache: {laid_out.blocks:,} blocks of {laid_out.block:,} tokens, "
        f"{laid_out.kv_token / 1024:g} KiB of keys and values a token.\n"
        f"One sequence of up to {laid_out.context:,} tokens, or {laid_out.chats:,} chats of 8,000, "
        f"or {laid_out.matches:,} matches with a kept state of 4,000.",
        highlight=False,
        soft_wrap=True,
    )
