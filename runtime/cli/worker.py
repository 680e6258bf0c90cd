"""`ostinato worker`: one worker alone, on a NATS server that is already there."""

from __future__ import annotations

import os
from typing import Annotated

import anyio
import typer

from engine.worker import NATS_VARIABLE, serve_worker
from runtime.cli.common import ConfigFlag, DtypeFlag, ModelFlag, WindowFlag, model_of, settings_of
from runtime.cli.show import err
from runtime.errors import BadInput


def worker(
    nats: Annotated[
        str | None,
        typer.Option(
            help=f"The NATS server, nats://USER:PASSWORD@HOST:PORT. Default: {NATS_VARIABLE}, which"
            " other users of this machine cannot read as they can a command line.",
            metavar="URL",
        ),
    ] = None,
    model: ModelFlag = None,
    window: WindowFlag = None,
    dtype: DtypeFlag = None,
    config: ConfigFlag = None,
) -> int:
    """Answer decisions of one model for everybody on a NATS server, until Ctrl-C or SIGTERM.

    More workers of the same model share its work; a worker takes only requests for its own model.
    """
    settings = settings_of(config, window=window, dtype=dtype)
    url = nats or os.environ.get(NATS_VARIABLE)
    if not url:
        raise BadInput(f"no NATS server; name one with --nats or {NATS_VARIABLE}")
    opened = model_of(model, settings)
    err.print(f"worker for {opened.name} ({opened.hash}); Ctrl-C ends it")
    anyio.run(lambda: serve_worker(nats_url=url, model=opened, dtype=settings.dtype))
    return 0
