"""Builds the command line, and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

import typer
from typer.exceptions import TyperException

from engine.errors import EngineError
from games.errors import GamesError
from runtime.cli import (
    INTERRUPTED,
    bench,
    check,
    check_agent,
    decide,
    doctor,
    extract,
    fetch,
    logs,
    nano,
    plan,
    play,
    replay,
    serve,
    status,
    tournament,
    worker,
)
from runtime.cli.show import print_json
from runtime.errors import RuntimeFault
from store.errors import StoreError

DONE, FAILED, USAGE = 0, 1, 2

app = typer.Typer(
    name="ostinato",
    help="Run, record and replay games whose agents ask a decision model.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 partly refused, 4 a replay differs, 130"
    " interrupted.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="play")(play.play)
app.command(name="demo")(play.demo)
app.command(name="replay")(replay.replay)
app.command(name="tournament")(tournament.tournament)
app.command(name="check")(check.check)
app.command(name="check-agent")(check_agent.check_agent)
app.command(name="decide")(decide.decide)
app.command(name="export")(logs.export)
app.command(name="import")(logs.import_)
app.command(name="worker")(worker.worker)
app.command(name="status")(status.status)
app.command(name="serve")(serve.serve)
app.command(name="api-key")(serve.api_key)
app.command(name="fetch")(fetch.fetch)
app.command(name="extract")(extract.extract)
app.command(name="plan")(plan.plan_command)
app.command(name="doctor")(doctor.doctor)
bench.bench.command(name="nano")(nano.nano)
app.add_typer(bench.bench, name="bench")


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and all log lines."),
) -> None:
    """Run, record and replay games whose agents ask a decision model."""
    if debug:
        os.environ["OSTINATO_DEBUG"] = "1"  # the worker process has to see it too
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code; errors are printed as one line.

    Raises:
        KeyboardInterrupt: It was interrupted, and has put everything away.
    """
    try:
        code = app(arguments, standalone_mode=False)
    except TyperException as error:
        _print("runtime/usage", f"{error.format_message().rstrip('.')}. See --help.", arguments)
        return USAGE
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        return _report(_first_known(group), arguments, group)
    except Exception as error:
        return _report(error, arguments, error)
    if code == INTERRUPTED:  # what Typer makes of Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else DONE


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

KNOWN = (RuntimeFault, EngineError, StoreError, GamesError)


def _first_known(group: BaseExceptionGroup) -> BaseException:
    """Task groups wrap what fails in them; a person wants the error that started it."""
    known, rest = group.split(KNOWN)
    inner: BaseException = known or rest or group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _report(error: BaseException, arguments: list[str], whole: BaseException) -> int:
    if os.environ.get("OSTINATO_DEBUG"):
        raise whole
    if isinstance(error, KNOWN):
        code, message = error.code, str(error)
    elif isinstance(error, OSError) and error.errno in _NO_ROOM:
        code = "runtime/output_failed"
        where = error.filename or "what the command writes"
        message = f"{where}: {error.strerror}; make room, or send the output elsewhere"
    else:
        code = "runtime/unexpected"
        message = f"{type(error).__name__}: {error} (run again with --debug and report it)"
    _print(code, message, arguments)
    return FAILED


def _print(code: str, message: str, arguments: list[str]) -> None:
    """Write one line for people, and the document that --json promises."""
    if "--json" in arguments:
        with suppress(OSError):  # the line below says so
            print_json({"error": {"code": code, "message": message}})
    sys.stderr.write(f"error: {' '.join(message.split())} [{code}]\n")
