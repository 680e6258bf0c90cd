"""What several commands share: flags, settings, the model that `--model` means."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.client import OnStray, QueueEngine, connect_engine
from engine.embedded import embedded
from engine.models import Model, open_model
from engine.settings import Device, KvCacheDtype, NumberFormat, Profile, Speculative
from runtime.errors import BadInput
from runtime.logging import configure_logging
from runtime.settings import Settings, load_settings

DEBUG = "OSTINATO_DEBUG"
SHIPPED = Path(__file__).parents[1] / "models" / "nano"
"""The small trained model (tools/nano), which every command takes if none is named."""

NatsFlag = Annotated[
    str | None,
    typer.Option(
        "--nats",
        help="The NATS server: nats://HOST:PORT, with USER:PASSWORD@ before HOST. Default:"
        " OSTINATO_NATS, which other users of this machine cannot read as they can a command line.",
        metavar="URL",
    ),
]
ConfigFlag = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file; default ostinato.toml.", metavar="FILE"),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
ModelFlag = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A bundle's folder; mock:seed=1 (an engine without a model, with ,delay_ms=5 and"
        " ,fail=0.01 after it); or systemone:URL (another decision server, with ,model=NAME and"
        " ,key-file=FILE after it). Default: nano, the small trained model that ships.",
        metavar="MODEL",
    ),
]
WindowFlag = Annotated[
    int | None,
    typer.Option(help="The most tokens of a sequence, record or chat.", metavar="TOKENS"),
]
ProfileFlag = Annotated[
    Profile | None,
    typer.Option(help="Window, seats and cache format together; what is set singly goes before."),
]
RecordTokensFlag = Annotated[
    int | None,
    typer.Option(
        "--max-record-tokens",
        help="The most tokens of a record. Default: the window.",
        metavar="TOKENS",
    ),
]
SeqsFlag = Annotated[
    int | None,
    typer.Option("--max-seqs", help="Sequences in one engine step.", metavar="NUMBER"),
]
CacheFlag = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-memory",
        help="For keys, values, states and head features: 20GiB, 512MiB. Default: 256MiB on a CPU,"
        " on a GPU what is free.",
        metavar="SIZE",
    ),
]
CacheDtypeFlag = Annotated[
    KvCacheDtype | None,
    typer.Option("--kv-cache-dtype", help="How keys and values are kept."),
]
StateDtypeFlag = Annotated[
    NumberFormat | None,
    typer.Option("--state-dtype", help="How states of linear attention are kept."),
]
SpeculativeFlag = Annotated[Speculative | None, typer.Option(help="How chats guess tokens ahead.")]
DraftFlag = Annotated[
    Path | None, typer.Option(help="A draft model's folder, for dflash2.", metavar="DIR")
]
HeadDeviceFlag = Annotated[
    Device | None,
    typer.Option("--head-device", help="Where the head scores. Default: beside the model."),
]
DeviceFlag = Annotated[
    Device | None, typer.Option(help="Where the model runs. Default: where vLLM here does.")
]
DtypeFlag = Annotated[
    str | None,
    typer.Option(help="The worker's numbers: float32 or bfloat16.", metavar="DTYPE"),
]


def check_match(match: str) -> str:
    """Give back the id of a match; raises BadInput for one that no match can have."""
    if not match.isprintable():
        raise BadInput(f"--match {match!r} is no match's id; name one that the file has")
    return match


def settings_of(config: Path | None, **flags: Any) -> Settings:
    """Put the settings together and have log lines written as they say."""
    settings = load_settings(config=config, **flags)
    debug = bool(os.environ.get(DEBUG))
    configure_logging(format=settings.log_format, level=logging.DEBUG if debug else logging.WARNING)
    return settings


@asynccontextmanager
async def engine_of(
    model: Model, settings: Settings, *, source: str, on_stray: OnStray | None = None
) -> AsyncIterator[QueueEngine]:
    """Give what answers a model's decisions: on the NATS server of the settings, or all of it here.

    Raises:
        EngineError: The broker or the worker does not start, or cannot be reached.
    """
    if settings.server is not None:
        connected = connect_engine(settings.server, model, source=source, on_stray=on_stray)
    else:
        connected = embedded(
            model, home=settings.home, source=source, settings=settings.worker, on_stray=on_stray
        )
    async with connected as engine:
        yield engine


def model_of(spec: str | None, settings: Settings) -> Model:
    """Open the model that was named, or the small trained one that ships.

    Raises:
        EngineError: It is no sound model.
    """
    return open_model(str(SHIPPED) if spec is None else spec, window=settings.longest_record)
