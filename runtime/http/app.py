"""The routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import anyio
import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.http import bodies, metrics, systemone
from runtime.http.gateway import Gateway
from runtime.http.openapi import document, page
from runtime.http.problems import Problem, encode, problem

log = logging.getLogger(__name__)

_CHARACTERS_A_TOKEN: Final = 4  # about
_CLOSED: Final = 499  # nobody is there to read it; for the log and the metrics


def application(gateway: Gateway) -> ASGIApp:
    """Give the application that answers for a gateway."""
    routes = Routes(gateway)
    paths: dict[str, tuple[str, Callable[[Request], Awaitable[ASGIApp]]]] = {
        "/v1/systemone": ("POST", routes.systemone),
        "/v1/chat/completions": ("POST", routes.chat),
        "/v1/completions": ("POST", routes.chat),
        "/v1/models": ("GET", routes.models),
        "/health": ("GET", routes.health),
        "/health/live": ("GET", routes.live),
        "/metrics": ("GET", routes.metrics),
        "/openapi.json": ("GET", routes.openapi),
        "/docs": ("GET", routes.docs),
    }
    app = Starlette(
        routes=[
            Route(path + end, handler, methods=[method])
            for path, (method, handler) in paths.items()
            for end in ("", "/")  # both directly: clients take no redirects
        ],
        exception_handlers={
            Problem: _on_problem,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: _on_fault,
        },
    )
    app.router.redirect_slashes = False
    return _Observed(app, gateway, routes=frozenset(paths))


class Routes:
    """What each path does."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._openapi = msgspec.json.encode(document(gateway.names))

    async def systemone(self, request: Request) -> ASGIApp:
        """Answer questions about a state."""
        gateway = self._gateway
        caller = gateway.identify(request.headers)  # before anything is unpacked
        body = await self._body(request)
        asked = systemone.read(body, models=gateway.names, caller=caller)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            with _while_connected(receive):
                reply = await gateway.decide(asked, caller=caller)
            document = systemone.reply_to(
                asked, reply, model=gateway.name, confidence=gateway.confidence
            )
            await _json(document)(scope, receive, send)

        return answer

    async def chat(self, request: Request) -> Response:
        """Have a chat's next words written by a worker."""
        gateway = self._gateway
        caller = gateway.identify(request.headers)
        body = await self._body(request)
        wanted, worker = gateway.chat.read(body, caller=caller)
        gateway.spend(caller, tokens=len(body) // _CHARACTERS_A_TOKEN)
        path = request.url.path.rstrip("/")
        with _while_connected(request.receive):
            return await gateway.chat.post(path, wanted, worker)

    async def _body(self, request: Request) -> bytes:
        """Read and unpack a JSON body; raises Problem."""
        limits = self._gateway.limits
        kind = request.headers.get("content-type", "application/json").partition(";")[0]
        if kind.strip().lower() not in ("application/json", ""):
            raise problem(
                415,
                "api_usage_error",
                f"content type {kind[:60]!r} is not read here; send application/json"
                " (images cannot be answered: this model reads text only)",
            )
        packed = await bodies.read_body(
            request.stream(), limit=limits.body_bytes, seconds=limits.body_s
        )
        encoding = request.headers.get("content-encoding", "")
        return bodies.unpack(packed, encoding, limit=limits.body_bytes)

    async def models(self, request: Request) -> Response:
        """List the model under its names, for clients of System One and of OpenAI."""
        self._gateway.identify(request.headers)
        gateway = self._gateway
        day = time.strftime("%Y-%m-%d", time.gmtime(gateway.started))
        about = f"{gateway.model.name} ({gateway.model.hash})"
        return _json(
            {
                "models": [
                    {"name": name, "description": about, "release_date": day}
                    for name in gateway.names
                ],
                "object": "list",
                "data": [
                    {
                        "id": name,
                        "object": "model",
                        "created": gateway.started,
                        "owned_by": "ostinato",
                        "max_model_len": gateway.model.window,
                    }
                    for name in gateway.names
                ],
            }
        )

    async def health(self, request: Request) -> Response:
        """Say whether decisions are answered now."""
        ready = self._gateway.ready()
        up = ready.process == "up" and ready.worker == "ready"
        return _json(msgspec.to_builtins(ready), status=200 if up else 503)

    async def live(self, request: Request) -> Response:
        """Say that this process answers."""
        return _json({"process": "up"})

    async def metrics(self, request: Request) -> Response:
        """Give the metrics."""
        self._gateway.identify(request.headers)
        return Response(self._gateway.metrics.text(), media_type=metrics.CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        """Give the description of this API."""
        return Response(self._openapi, media_type="application/json")

    async def docs(self, request: Request) -> Response:
        """Give it as a page."""
        text = page(self._gateway.names, str(request.base_url))
        return Response(text, media_type="text/html")


@contextlib.contextmanager
def _while_connected(receive: Receive) -> Iterator[None]:
    """Leave the block when the client goes away; raises ClientDisconnect then.

    Args:
        receive: The request's, whose body was read; what comes now is that the client is gone, or
            that it has its reply.
    """

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with anyio.CancelScope() as scope:
        watch = asyncio.create_task(gone())  # a task group takes twice as long, for every request
        try:
            yield
            return
        finally:
            watch.cancel()
    raise ClientDisconnect


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    request.scope["ostinato.code"] = error.code
    return Response(encode(error), error.status, error.headers, "application/json")


async def _on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody reads it."""
    request.scope["ostinato.code"] = "client_gone"
    return Response(status_code=_CLOSED)


async def _on_fault(request: Request, error: Exception) -> Response:
    """A fault of the server; Starlette raises it further once this is sent."""
    name = request.scope["ostinato.request"]
    told = problem(500, "internal_error", f"the server failed; its log has request {name}")
    return await _on_problem(request, told)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, or another method."""
    assert isinstance(error, HTTPException)
    kind = "not_found" if error.status_code == 404 else "api_usage_error"
    told = problem(error.status_code, kind, f"{request.method} {request.url.path}: {error.detail}")
    told.headers.update(error.headers or {})
    return await _on_problem(request, told)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class _Observed:
    """Gives every reply its request's id, writes a log line and counts."""

    def __init__(self, app: ASGIApp, gateway: Gateway, *, routes: frozenset[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, name = time.monotonic(), uuid.uuid4().hex
        status = _CLOSED
        scope["ostinato.request"] = name
        structlog.contextvars.bind_contextvars(request=name)  # for every line written on its behalf

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-typesafe-request-id", name.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:
            log.exception("a request broke the server")
        finally:
            self._note(scope, name, status, time.monotonic() - started)

    def _note(self, scope: Scope, name: str, status: int, seconds: float) -> None:
        path = scope["path"].rstrip("/")
        route = path if path in self._routes else "other"
        counted = self._gateway.metrics
        counted.request(route, status, seconds)
        code = scope.get("ostinato.code")
        if code is not None:
            counted.error(code)
        log.info(
            "request",
            extra={
                "route": route,
                "status": status,
                "code": code,
                "ms": round(seconds * 1000, 2),
            },
        )
