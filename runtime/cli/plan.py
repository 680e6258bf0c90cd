"""`ostinato plan`: what a card holds of a bundle, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from engine.bundle import load_bundle
from engine.plan import Plan, Weights, draft_size, plan, sizes_of
from engine.settings import GIB, Size
from runtime.cli import show
from runtime.cli.common import (
    CacheDtypeFlag,
    CacheFlag,
    ConfigFlag,
    DeviceFlag,
    DraftFlag,
    DtypeFlag,
    HeadDeviceFlag,
    JsonFlag,
    ProfileFlag,
    SeqsFlag,
    SpeculativeFlag,
    StateDtypeFlag,
    WindowFlag,
    settings_of,
)
from runtime.cli.show import Table
from runtime.errors import BadInput

_BAR = 60  # characters


def plan_command(
    model: Annotated[Path, typer.Option(help="The bundle.", metavar="BUNDLE")],
    gpu_memory: Annotated[
        str,
        typer.Option(
            help="Of the card, or with --device cpu what is free for it: 32GiB, 24GB.",
            metavar="SIZE",
        ),
    ],
    weights: Annotated[
        Weights,
        typer.Option(help="The layers' matrices as stored, or as if quantized to 8 or 4 bits."),
    ] = "stored",
    profile: ProfileFlag = None,
    window: WindowFlag = None,
    max_seqs: SeqsFlag = None,
    dtype: DtypeFlag = None,
    kv_cache_memory: CacheFlag = None,
    kv_cache_dtype: CacheDtypeFlag = None,
    state_dtype: StateDtypeFlag = None,
    speculative: SpeculativeFlag = None,
    draft: DraftFlag = None,
    head_device: HeadDeviceFlag = None,
    device: DeviceFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> int:
    """Show what a card holds: weights, adapter, head, cache, and how much context that is.

    Reads the same settings as a worker and loads nothing. Exit code 1 if the model, or a sequence
    as long as the window that is set, does not fit, with what to change.

    Example: ostinato plan --model clef-bundle --gpu-memory 32GiB --weights w4a16 --profile long
    """
    memory = _bytes(gpu_memory)
    settings = settings_of(
        config,
        profile=profile,
        window=window,
        max_seqs=max_seqs,
        dtype=dtype,
        kv_cache_memory=kv_cache_memory,
        kv_cache_dtype=kv_cache_dtype,
        state_dtype=state_dtype,
        speculative=speculative,
        draft=draft,
        head_device=head_device,
        device=device,
    ).worker
    settings = msgspec.structs.replace(settings, device=settings.device or "gpu")
    sizes = sizes_of(load_bundle(model), settings, weights=weights)
    laid_out = plan(
        sizes,
        memory,
        settings,
        draft=draft_size(settings.draft) if settings.draft else 0,
        window=settings.window and min(settings.window, sizes.longest),
    )
    if json:
        show.print_json(laid_out)
    else:
        _show(laid_out, memory)
    return 0


def _bytes(text: str) -> int:
    try:
        return Size.parse(text)
    except ValueError as error:
        raise BadInput(f"--gpu-memory {error}") from error


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
        f"or {laid_out.matches:,} matches with a kept state of 4,000.\n"
        f"With the window of {laid_out.window:,} tokens: {laid_out.seats:,} as long as that.",
        highlight=False,
        soft_wrap=True,
    )
