"""`ostinato worker`: one worker alone, on a NATS server that is already there."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import anyio
import typer

from engine.worker import NATS_VARIABLE, Worker, serve_worker
from runtime.cli.common import (
    CacheDtypeFlag,
    CacheFlag,
    ConfigFlag,
    DeviceFlag,
    DraftFlag,
    DtypeFlag,
    HeadDeviceFlag,
    ModelFlag,
    NatsFlag,
    ProfileFlag,
    RecordTokensFlag,
    SeqsFlag,
    SpeculativeFlag,
    StateDtypeFlag,
    WindowFlag,
    model_of,
    settings_of,
)
from runtime.cli.show import err
from runtime.errors import BadInput
from runtime.metrics import figures_of_worker, metrics


def worker(
    nats: NatsFlag = None,
    model: ModelFlag = None,
    profile: ProfileFlag = None,
    window: WindowFlag = None,
    max_record_tokens: RecordTokensFlag = None,
    max_seqs: SeqsFlag = None,
    dtype: DtypeFlag = None,
    kv_cache_memory: CacheFlag = None,
    kv_cache_dtype: CacheDtypeFlag = None,
    state_dtype: StateDtypeFlag = None,
    speculative: SpeculativeFlag = None,
    draft: DraftFlag = None,
    head_device: HeadDeviceFlag = None,
    device: DeviceFlag = None,
    chat_host: Annotated[
        str | None,
        typer.Option(help="Where it chats; gateways on other machines need one they reach."),
    ] = None,
    config: ConfigFlag = None,
) -> int:
    """Answer decisions of one model for everybody on a NATS server, until Ctrl-C or SIGTERM.

    More workers of the same model share its work; a worker takes only requests for its own model.
    What does not fit in memory is refused before anything is loaded; `ostinato plan` takes the
    same flags and shows it.

    Example: ostinato worker --model clef-bundle --profile fast --kv-cache-memory 20GiB
    """
    settings = settings_of(
        config,
        profile=profile,
        window=window,
        max_record_tokens=max_record_tokens,
        max_seqs=max_seqs,
        dtype=dtype,
        kv_cache_memory=kv_cache_memory,
        kv_cache_dtype=kv_cache_dtype,
        state_dtype=state_dtype,
        speculative=speculative,
        draft=draft,
        head_device=head_device,
        device=device,
        chat_host=chat_host,
        nats=nats,
    )
    server = settings.server
    if server is None:
        raise BadInput(f"no NATS server; name one with --nats or {NATS_VARIABLE}")
    opened = model_of(model, settings)
    err.print(f"worker for {opened.name} ({opened.hash}); Ctrl-C ends it")
    with ExitStack() as stack:

        def measure(worker: Worker) -> None:
            read = lambda: figures_of_worker(worker.describe())  # noqa: E731
            stack.enter_context(metrics(settings.metrics_port, read))

        anyio.run(
            lambda: serve_worker(
                nats=server, model=opened, settings=settings.worker, on_ready=measure
            ),
            backend_options={"use_uvloop": True},
        )
    return 0
