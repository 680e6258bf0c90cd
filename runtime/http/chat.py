"""Chat: passed on to a worker, whose engine answers it on the base weights beside decisions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import anyio
import httpx
from starlette.responses import Response, StreamingResponse

from engine.fleet import ChatInfo
from runtime.http.problems import Problem, retry_headers

_FIRST: Final = 2048  # characters of a conversation's first message that tell it from others
_ANSWER_S: Final = 120.0  # without a byte
_NOT_FOR_CLIENTS: Final = ("priority", "kv_transfer_params", "vllm_xargs", "data_parallel_rank")
_PASSED_BACK: Final = ("content-type", "retry-after")


def chat_problem(
    status: int, message: str, *, kind: str = "invalid_request_error", retry_s: float | None = None
) -> Problem:
    """Give an error as clients of OpenAI read it."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return Problem(status, body, retry_headers(retry_s), code=f"chat_{kind}")


class ChatProxy:
    """Passes requests on.

    Args:
        models: Names by which the base weights are called.
        decides: Names that only decide.
    """

    def __init__(self, models: Sequence[str], decides: Sequence[str]) -> None:
        self._models = tuple(models)
        self._decides = frozenset(decides) - frozenset(models)
        self._client = httpx.AsyncClient(timeout=httpx.Timeout(_ANSWER_S, connect=5.0))
        self.workers: list[ChatInfo] = []
        """Those that chat now."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def read(self, body: bytes, *, caller: str) -> tuple[dict[str, Any], ChatInfo]:
        """Read a request and choose the worker: the same one for the whole conversation.

        Args:
            body: JSON, as the client sent it.
            caller: The name of the client's key; no two keys share what is kept of a prompt.

        Raises:
            Problem: 400 or 404 for the client's fault, 503 when no worker chats.
        """
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise chat_problem(400, f"the body is no JSON: {error}") from error
        if not isinstance(request, dict):
            raise chat_problem(400, "the body must be a JSON object")
        self._check_model(request.get("model"))
        for name in _NOT_FOR_CLIENTS:
            if request.get(name) is not None:
                raise chat_problem(400, f"{name} is not for clients to set; leave it out")
        salt = request.get("cache_salt")
        if salt is not None and (not isinstance(salt, str) or not salt):
            raise chat_problem(400, "cache_salt must be a string that is not empty")
        if caller or salt:
            request["cache_salt"] = f"{caller} {salt or ''}"
        if not self.workers:
            raise chat_problem(
                503, "no worker that chats is ready", kind="unavailable_error", retry_s=1.0
            )
        worker = choose(self.workers, _start(request))
        request["model"] = worker.model
        return request, worker

    async def post(self, path: str, request: dict[str, Any], worker: ChatInfo) -> Response:
        """Pass a request on, and the answer back as it comes.

        Leaving the reply's iteration, as a client does that goes away, ends the work too.

        Raises:
            Problem: 400 for a number that JSON does not have, 503 when the worker is not there any
                more.
        """
        try:
            content = json.dumps(request, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError) as error:  # the reading takes NaN and 1e999
            raise chat_problem(400, f"the body cannot be passed on: {error}") from error
        sent = self._client.build_request(
            "POST",
            worker.url + path,
            content=content.encode("utf-8", "surrogatepass"),
            headers={
                "authorization": f"Bearer {worker.token}",
                "content-type": "application/json",
            },
        )
        try:
            reply = await self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            raise chat_problem(
                503, f"the worker did not answer: {error}", kind="unavailable_error", retry_s=1.0
            ) from error

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in reply.aiter_raw():
                    yield part
            finally:
                with anyio.CancelScope(shield=True):
                    await reply.aclose()

        headers = {name: reply.headers[name] for name in _PASSED_BACK if name in reply.headers}
        return StreamingResponse(parts(), reply.status_code, headers)

    def _check_model(self, model: Any) -> None:
        if model is None or model in self._models:
            return
        shown = str(model)[:100].encode("utf-8", "backslashreplace").decode()
        if isinstance(model, str) and model in self._decides:
            raise chat_problem(404, f"{shown} answers decisions only; chat with {self._models[0]}")
        raise chat_problem(404, f"no model {shown!r} here; chat with {self._models[0]}")


def choose(workers: Sequence[ChatInfo], start: str) -> ChatInfo:
    """Give the worker of a conversation, by highest hash; others move only if that one is gone."""

    def weight(worker: ChatInfo) -> bytes:
        return hashlib.sha256(f"{worker.worker} {start}".encode()).digest()

    return max(workers, key=weight)


def _start(request: dict[str, Any]) -> str:
    """Give what stays the same while a conversation goes on."""
    messages = request.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else request.get("prompt")
    return json.dumps(first, sort_keys=True)[:_FIRST]
