"""`ostinato serve`: the System One API; `ostinato api-key`: a key for it."""

from __future__ import annotations

import ipaddress
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio
import typer

from runtime.cli.common import (
    ConfigFlag,
    DtypeFlag,
    ModelFlag,
    WindowFlag,
    model_of,
    settings_of,
)
from runtime.cli.show import err
from runtime.errors import BadInput
from store.sqlite import open_log

HOST, PORT = "127.0.0.1", 8000


def serve(
    model: ModelFlag = None,
    nats: Annotated[
        str | None,
        typer.Option(
            help="A broker whose workers answer; OSTINATO_NATS is the same. Without it a broker"
            " and a worker run here.",
            metavar="URL",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = HOST,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = PORT,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="Who may ask: a file of keys, see `ostinato api-key`.", metavar="FILE"),
    ] = None,
    no_key: Annotated[
        bool,
        typer.Option(
            "--no-key", help="Let anybody ask who reaches an address other than loopback."
        ),
    ] = False,
    alias: Annotated[
        list[str] | None,
        typer.Option(help="One more name of the model; may be given several times."),
    ] = None,
    confidence: Annotated[
        Literal["typesafe", "release"],
        typer.Option(help="How replies say how sure they are: the API's formula or the release's."),
    ] = "typesafe",
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds for a decision; clients give up at 10.")
    ] = 9.0,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Keep every decision: a log with a match for each session of a client.",
            metavar="FILE.db",
        ),
    ] = None,
    dtype: DtypeFlag = None,
    window: WindowFlag = None,
    config: ConfigFlag = None,
) -> int:
    """Answer System One requests over HTTP: POST /v1/systemone.

    Clients of the API need two variables: TYPESAFE_BASE_URL (this server) and TYPESAFE_API_KEY
    (any text while no file of keys is given). /health says whether a worker is ready, /metrics
    has figures for Prometheus, /openapi.json describes the API. SIGTERM ends it in order.
    """
    # Starlette and uvicorn are not needed by any other command
    from runtime.http.gateway import Gateway, Limits
    from runtime.http.keys import Keys
    from runtime.http.serving import listen
    from runtime.http.serving import serve as run
    from runtime.http.sessions import Sessions
    from runtime.http.sharing import Sharing

    settings = settings_of(config, window=window, dtype=dtype, nats=nats)
    if not 0 < deadline_s <= 600:
        raise BadInput(f"--deadline {deadline_s:g}: give seconds, more than 0 and at most 600")
    if api_key_file is None and not no_key and not _is_loopback(host):
        raise BadInput(
            f"--host {host} can be reached by others: give --api-key-file, or --no-key to let"
            " everybody ask"
        )
    keys = None if api_key_file is None else Keys(api_key_file)
    opened = model_of(model, settings)
    listener = listen(host, port)
    shown = f"http://{host}:{listener.getsockname()[1]}"

    def make(sharing: Sharing, sessions: Sessions | None) -> Gateway:
        return Gateway(
            opened,
            sharing,
            sessions=sessions,
            keys=keys,
            aliases=tuple(alias or ()),
            confidence=confidence,
            limits=Limits(deadline_s=deadline_s),
        )

    async def main() -> None:
        async with AsyncExitStack() as stack:
            sessions = None
            if log is not None:
                kept = open_log(log, synchronous=settings.synchronous)
                sessions = Sessions(kept, opened, deadline_s=deadline_s)
                stack.push_async_callback(sessions.close)
            await run(
                partial(make, sessions=sessions),
                listener=listener,
                model=opened,
                home=settings.home,
                nats=settings.server,
                settings=settings.worker,
                on_listening=lambda: err.print(f"listening on {shown}; a worker is getting ready"),
                on_ready=lambda: err.print(f"ready: {opened.name} at {shown}/v1/systemone"),
            )

    anyio.run(main, backend_options={"use_uvloop": True})
    err.print("ended")
    return 0


def api_key(
    name: Annotated[
        str, typer.Argument(help="Whose key it is; shown in errors and logs.", metavar="NAME")
    ],
) -> None:
    """Make a key; append what it prints on standard output to the file of keys.

    The key itself is shown once, on standard error: only its SHA-256 goes into the file.
    """
    from runtime.http.keys import make_key

    key, entry = make_key(name)
    err.print(f"the key of {name}, shown only now: {key}", highlight=False, soft_wrap=True)
    typer.echo(entry, nl=False)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
