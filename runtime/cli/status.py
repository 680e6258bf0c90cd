"""`ostinato status`: the queue, its workers, and the agents of a log."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.console import Group
from rich.live import Live

from engine.broker import running_brokers
from engine.queue import Queue
from engine.server import Server
from runtime.cli.common import ConfigFlag, JsonFlag, NatsFlag, settings_of
from runtime.cli.show import Table, out, print_json, signals_table
from runtime.errors import BadInput
from runtime.log_signals import LogSignals, LogStatus
from runtime.settings import Settings
from runtime.status import Status, status_of
from store.sqlite import open_log


def status(
    nats: NatsFlag = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Show the signals of this log's matches too.", metavar="FILE.db"),
    ] = None,
    config: ConfigFlag = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Show the queue: what waits, since when, who works on it, and how much of it is reused.

    Without --nats and OSTINATO_NATS it looks at the brokers that run in the data folder. With --log
    it shows which agents are stuck, go round in circles, answer late or are replaced by the match's
    fallback, in matches under way and in those that ended (docs/signals.md).

    Example: ostinato status --log games.db --watch
    """
    settings = settings_of(config, nats=nats)
    servers = _servers(settings)
    if not servers and log is None:
        raise BadInput(
            f"no broker runs in {settings.home / 'run'}; start a run or `ostinato serve`, or name a"
            " server with --nats, or a log with --log"
        )
    anyio.run(lambda: _show(servers, log, watch=watch, json=json))
    return 0


def _servers(settings: Settings) -> dict[str, Server]:
    if settings.server is not None:
        return {settings.server.url.rpartition("@")[2]: settings.server}
    brokers = running_brokers(Path(settings.home) / "run")
    return {f"127.0.0.1:{each.port}": Server(url=each.url) for each in brokers}


async def _show(servers: dict[str, Server], path: Path | None, *, watch: bool, json: bool) -> None:
    async with AsyncExitStack() as stack:
        queues: dict[str, Queue] = {}
        for name, server in servers.items():
            queues[name] = await Queue.connect(server)
            stack.push_async_callback(queues[name].close)
        signals: LogSignals | None = None
        if path is not None:
            log = open_log(path, read_only=True)
            stack.push_async_callback(log.close)
            signals = LogSignals(log)
        live = Live(console=out, auto_refresh=False)
        if watch and not json:
            stack.enter_context(live)
        while True:
            found = {name: await status_of(queue) for name, queue in queues.items()}
            read = None if signals is None else signals.look()
            if json:
                print_json(found if read is None else {**found, "log": read})
            elif watch:
                live.update(_tables(found, path, read), refresh=True)
            else:
                out.print(_tables(found, path, read))
            if not watch:
                return
            await anyio.sleep(1)


def _tables(found: dict[str, Status], path: Path | None, read: LogStatus | None) -> Group:
    tables = [table for name, status in found.items() for table in _of(name, status)]
    if read is not None:
        unread = f", {read.unread:,} of games that cannot be followed" if read.unread else ""
        head = f"{path}: {read.matches:,} matches, {read.under_way:,} under way{unread}; signals"
        tables.append(signals_table(read.signals, head))
    return Group(*tables)


def _of(name: str, status: Status) -> list[Table]:
    queue = status.queue
    oldest = "-" if queue.oldest_s is None else f"{queue.oldest_s:.1f} s"
    head = f"{name}: {queue.waiting:,} of {queue.limit:,} waiting, oldest {oldest}"
    workers = Table(title=head, title_justify="left")
    for column in ("worker", "bundle", "partitions", "in flight", "answered", "failed", "again"):
        workers.add_column(column, justify="left" if column in ("worker", "bundle") else "right")
    workers.add_column("reused", justify="right")
    for each in status.workers:
        tokens = each.tokens_read + each.tokens_reused
        workers.add_row(
            f"{each.worker} ({each.pid})",
            each.bundle,
            str(len(each.partitions)),
            str(each.in_flight),
            f"{each.answered:,}",
            f"{each.failed:,}",
            f"{each.redelivered:,}",
            f"{each.tokens_reused / tokens:.0%}" if tokens else "-",
        )
    partitions = Table("bundle", "partition", "waiting", "in work", "delivered again")
    for each in queue.partitions:
        if each.waiting or each.in_work or each.redelivered:
            numbers = (each.partition, each.waiting, each.in_work, each.redelivered)
            partitions.add_row(each.bundle, *map(str, numbers))
    return [workers, partitions] if partitions.row_count else [workers]
