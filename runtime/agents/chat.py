"""Asks a chat model for the label of an option."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec

from engine.errors import DecisionExpired, EngineFailed
from runtime.agents.base import Act, Agent, Turn
from runtime.errors import BadInput, UnknownAgent
from runtime.settings import Seconds
from store.events import ChatCost

ROUTE: Final = "/v1/chat/completions"
_SYSTEM: Final = (
    "You play a game. Read the rules and the log, then choose one of the options that are listed"
    " last. Answer with the label of that option and with nothing else."
)
_TOKENS_BESIDE: Final = 16  # room for what a model writes around a label
_LATE_S: Final = 5.0  # by which an answer that expires is told before the agent is given up
_SHOWN: Final = 200  # characters of an answer that is no label
_SEEDS: Final = 2**31


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `chat:URL,name=value,...` can say.

    Attributes:
        url: Where requests go: with a path as it is, else with the route of OpenAI's API.
        model: The model's name; empty leaves it to the server.
        temperature: 0 takes the likeliest words; above, the match's own numbers seed the draw.
        key_file: Its first line is sent as the key.
        deadline_s: Seconds for one answer.
    """

    url: str
    model: str = ""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.0
    key_file: Path | None = None
    deadline_s: Seconds = 120.0


def parse_chat(parameters: str) -> ChatSettings:
    """Read the parameters of a chat agent; raises UnknownAgent."""
    url, *items = parameters.split(",")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnknownAgent("chat needs a server: chat:http://HOST:PORT[,model=NAME]")
    names = {"model": "model", "temperature": "temperature"}
    names |= {"key-file": "key_file", "deadline": "deadline_s"}
    values: dict[str, Any] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or name not in names:
            raise UnknownAgent(f"chat:{parameters}: {item!r} is none of {', '.join(names)}=VALUE")
        values[names[name]] = Path(value).expanduser() if name == "key-file" else value
    path = parts.path.rstrip("/") or ROUTE
    values["url"] = parts._replace(path=path).geturl()
    try:
        return msgspec.convert(values, ChatSettings, strict=False)
    except msgspec.ValidationError as error:
        raise UnknownAgent(f"chat:{parameters}: {error}") from error


class ChatAgent(Agent):
    """`chat:URL[,model=NAME][,temperature=T][,key-file=FILE][,deadline=SECONDS]`.

    The prompt has the seat's view first, so that a server that keeps prefixes need not read it anew
    each turn, and the options last. An answer that is no label counts as an illegal action: it is
    recorded and the model is asked once more, then the match's fallback follows.
    """

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self.deadline_s = settings.deadline_s + _LATE_S
        self._headers: dict[str, str] = {}
        if settings.key_file is not None:
            self._headers["authorization"] = f"Bearer {_read_key(settings.key_file)}"
        # making one for each turn would take longer than a turn
        self._verify = ssl.create_default_context() if settings.url.startswith("https") else False

    async def act(self, turn: Turn) -> Act:
        """Ask; the answer's costs go with the action.

        Raises:
            DecisionExpired: No answer came in time.
            EngineFailed: The server refused, or answered with what is no chat.
        """
        settings, started = self._settings, time.monotonic()
        draw = turn.draw() if settings.temperature else None
        longest = max(len(option.id.encode()) for option in turn.options)
        request: dict[str, Any] = {
            "messages": messages(turn),
            "temperature": settings.temperature,
            "max_tokens": longest + _TOKENS_BESIDE,
        }
        if settings.model:
            request["model"] = settings.model
        if draw is not None:
            request["seed"] = int(draw * _SEEDS)
        document = await self._post(request)
        text, cost = _read(document, ms=(time.monotonic() - started) * 1000)
        labels = {option.id.strip(): option.id for option in turn.options}
        return Act(labels.get(text.strip(), text[:_SHOWN]), draw, cost)

    async def _post(self, request: dict[str, Any]) -> Any:
        settings = self._settings
        try:
            with anyio.fail_after(settings.deadline_s):
                async with httpx.AsyncClient(
                    verify=self._verify, headers=self._headers, timeout=None
                ) as client:
                    reply = await client.post(settings.url, json=request)
        except TimeoutError as error:
            raise DecisionExpired(
                f"chat: no answer from {settings.url} in {settings.deadline_s:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise EngineFailed(f"chat: {settings.url}: {error or type(error).__name__}") from error
        if reply.status_code != 200:
            raise EngineFailed(
                f"chat: {settings.url} says {reply.status_code}: {reply.text[:_SHOWN]}"
            )
        try:
            return msgspec.json.decode(reply.content)
        except msgspec.DecodeError as error:
            raise EngineFailed(f"chat: the reply of {settings.url} is no JSON: {error}") from error


def messages(turn: Turn) -> list[dict[str, str]]:
    """Give the conversation that asks for a turn."""
    options = "\n".join(
        f"{option.id}: {option.description}" if option.description else option.id
        for option in turn.options
    )
    parts = [turn.view.public, turn.view.private, f"\n\nOptions:\n{options}\n"]
    if turn.refused is not None:
        parts.append(f"Your last answer was refused ({turn.refused}).\n")
    parts.append("Label:")
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": "".join(parts)},
    ]


def _read(document: Any, *, ms: float) -> tuple[str, ChatCost]:
    """Give the text and what it took; counts that the server does not say are 0."""
    try:
        text = document["choices"][0]["message"]["content"] or ""
        usage = document.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        cost = ChatCost(
            model=str(document.get("model", "")),
            tokens_read=int(usage.get("prompt_tokens") or 0),
            tokens_reused=int(details.get("cached_tokens") or 0),
            tokens_written=int(usage.get("completion_tokens") or 0),
            total_ms=ms,
        )
        return str(text), msgspec.structs.replace(
            cost, tokens_read=max(0, cost.tokens_read - cost.tokens_reused)
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineFailed(f"chat: the reply is no chat: {str(document)[:_SHOWN]}") from error


def _read_key(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: {error}; name a readable key-file") from error
    if not key or not key.isascii():
        raise BadInput(f"{file}: its first line is no key")
    return key
