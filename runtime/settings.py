"""Settings: defaults, then a profile, then a TOML file, then environment variables, then flags.

A file is `ostinato.toml` in the working folder, or what `--config` or `OSTINATO_CONFIG` names. The
variable of a setting is its name in capitals behind `OSTINATO_`, such as `OSTINATO_DEADLINE_S`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from engine.server import Server
from engine.settings import Profile, WorkerSettings, decode_value, profile_values
from runtime.errors import BadSettings
from store.events import Fallback

PREFIX = "OSTINATO_"
FILE = "ostinato.toml"

_OTHER_VARIABLES = {"CONFIG", "DEBUG", "PARENT_PIPE"}
"""Names behind the prefix that are not settings: they pass from process to process."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
"""To wait for something; what never ends is no deadline, and no log can hold an infinity."""

_Count = Annotated[int, msgspec.Meta(ge=1)]


class Settings(WorkerSettings, frozen=True, kw_only=True):
    """All settings; those of a worker are described there.

    Attributes:
        home: The data folder: logs, broker files.
        deadline_s: Seconds to wait for a decision in a match.
        fallback: What a match does when a decision cannot be had.
        concurrency: How many matches are under way at once.
        synchronous: `FULL` survives a power failure; `NORMAL` may lose the last moments then.
        profile: A set of worker settings that the others go before.
        nats: A NATS server to use, `nats://USER:PASSWORD@HOST:PORT`; None starts one here.
        nats_ca: Certificates that may sign the server's, a PEM file; turns TLS on.
        nats_certificate, nats_key: The client's own, where the server asks for them.
        metrics_port: Where `ostinato worker` and `ostinato play` answer Prometheus, on this machine
            alone; None: nowhere.
        log_format: Log lines on standard error as text for people or as JSON.
    """

    home: Path = Path(".ostinato")
    deadline_s: Seconds = 30.0
    fallback: Fallback = "pause"
    concurrency: _Count = 16
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    profile: Profile | None = None
    nats: str | None = None
    nats_ca: Path | None = None
    nats_certificate: Path | None = None
    nats_key: Path | None = None
    metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    log_format: Literal["console", "json"] = "console"

    @property
    def server(self) -> Server | None:
        """The NATS server to use; None starts one here."""
        if not self.nats:
            return None
        return Server(
            url=self.nats, ca=self.nats_ca, certificate=self.nats_certificate, key=self.nats_key
        )

    @property
    def worker(self) -> WorkerSettings:
        """Those of a worker alone."""
        names = WorkerSettings.__struct_fields__
        return WorkerSettings(**{name: getattr(self, name) for name in names})


def load_settings(
    *, config: Path | None = None, environment: Mapping[str, str] | None = None, **flags: Any
) -> Settings:
    """Put the settings together.

    Args:
        config: The settings file; None takes `OSTINATO_CONFIG`, else `ostinato.toml` if there is
            one.
        environment: None takes the process's own.
        **flags: Settings given on the command line; those that are None were not given.

    Raises:
        BadSettings: A name is not a setting, or a value does not fit; says where it stands.
    """
    environment = os.environ if environment is None else environment
    named = config or (Path(value) if (value := environment.get(f"{PREFIX}CONFIG")) else None)
    values: dict[str, Any] = {}
    if named is not None or Path(FILE).exists():
        file = named or Path(FILE)
        values |= _checked(_read(file), f"{file}: ")
    for variable, value in environment.items():
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in _OTHER_VARIABLES:
            values |= _checked({name.lower(): value}, f"variable {variable}: ")
    for name, value in flags.items():
        if value is not None:
            values |= _checked({name: value}, f"--{name.removesuffix('_s').replace('_', '-')}: ")
    if profile := values.get("profile"):
        values = _checked(profile_values(profile), f"profile {profile}: ") | values
    return Settings(**values)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"{file}: {error.strerror}; name a readable settings file") from error
    except (ValueError, RecursionError) as error:  # also for numbers and nesting beyond Python's
        raise BadSettings(f"{file}: not TOML: {error}") from error


def _checked(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Convert the values of one source; `place` starts the message of what is wrong there."""
    known = Settings.__struct_fields__
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise BadSettings(f"{place}{name} is not a setting; {hint}")
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=decode_value)
    except msgspec.ValidationError as error:
        what, _, name = str(error).partition(" - at `$.")
        name = name.rstrip("`")
        hint = f"; there are {', '.join(choices)}" if (choices := _choices(name)) else ""
        raise BadSettings(f"{place}{what} - at `{name}`{hint}") from error
    return {name: getattr(settings, name) for name in values}


def _choices(name: str) -> list[str]:
    """Give what a setting may be, where that is a list of words."""
    hint = get_type_hints(Settings)[name]
    return [
        word for each in (hint, *get_args(hint)) for word in get_args(each) if isinstance(word, str)
    ]
