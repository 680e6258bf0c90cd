"""Chat on the worker's engine: vLLM's own server, behind a door with one key.

Two of its routes pass, for the gateways that have the token from the broker. The guarded engine
behind it keeps whatever comes on the base weights.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
import uvicorn

from engine.errors import EngineFailed
from engine.fleet import ChatInfo
from engine.llm.guarded import GuardedLLM

ROUTES: Final = ("/v1/chat/completions", "/v1/completions")
_GRACE_S: Final = 2

_Application = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def chat_server(engine: GuardedLLM, model: str, *, host: str) -> AsyncIterator[ChatInfo]:
    """Serve chat for the length of the block.

    Args:
        engine: Generates.
        model: The name of its base weights.
        host: The address to listen on; the port is a free one.

    Raises:
        EngineFailed: It is no address of this machine.
    """
    token = secrets.token_urlsafe(32)
    application = _Door(await _vllm_application(engine, model), token)
    config = uvicorn.Config(
        application,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    try:
        listener = socket.create_server((host, 0))
    except OSError as error:
        raise EngineFailed(
            f"chat_host {host}: {error.strerror}; name an address of this machine"
        ) from error
    with listener:
        port = listener.getsockname()[1]
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            yield ChatInfo(worker=token[:8], url=f"http://{host}:{port}", token=token, model=model)
            server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's, without its handling of signals: the worker has its own."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


class _Door:
    """Lets two routes pass, and only with the token."""

    def __init__(self, application: _Application, token: str) -> None:
        self._application = application
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, self._wanted):
            await _refuse(send, 401)
        elif scope["path"] not in ROUTES:
            await _refuse(send, 404)
        else:
            await self._application(scope, receive, send)


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _vllm_application(engine: GuardedLLM, model: str) -> _Application:
    """Build vLLM's application around an engine that runs already."""
    with _log_levels_kept():
        from vllm.entrypoints.openai.api_server import build_app, init_app_state
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = make_arg_parser(FlexibleArgumentParser())
        arguments = parser.parse_args(
            ["--model", model, "--served-model-name", model, "--enable-prompt-tokens-details"]
        )
        assert arguments is not None
        tasks = await engine.get_supported_tasks()
        application = build_app(arguments, tasks, engine.model_config)
        await init_app_state(engine, application.state, arguments, tasks)
    return application


@contextmanager
def _log_levels_kept() -> Iterator[None]:
    """Let the worker's warnings be written: a library of vLLM's server turns them off on import."""
    root = logging.getLogger()
    levels = [(each, each.level) for each in (root, *root.handlers)]
    try:
        yield
    finally:
        for each, level in levels:
            each.setLevel(level)
