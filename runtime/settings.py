"""Settings: defaults, then a TOML file, then environment variables, then flags.

A file is `ostinato.toml` in the working folder, or what `--config` or `OSTINATO_CONFIG` names. The
variable of a setting is its name in capitals behind `OSTINATO_`, such as `OSTINATO_DEADLINE_S`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from runtime.errors import BadSettings
from store.events import Fallback

PREFIX = "OSTINATO_"
FILE = "ostinato.toml"

_OTHER_VARIABLES = {"CONFIG", "DEBUG", "NATS", "PARENT_PIPE"}
"""Names behind the prefix that are not settings: they pass from process to process."""

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings.

    Attributes:
        home: The data folder: default bundle, logs, broker files.
        window: The most tokens a record may have; None takes the smaller of the model's and
            32,768.
        deadline_s: Seconds to wait for a decision in a match.
        fallback: What a match does when a decision cannot be had.
        concurrency: How many matches are under way at once.
        synchronous: `FULL` survives a power failure; `NORMAL` may lose the last moments then.
        dtype: Of the worker's numbers; None leaves it to the worker.
        log_format: Log lines on standard error as text for people or as JSON.
    """

    home: Path = Path(".ostinato")
    window: _Count | None = None
    deadline_s: _Positive = 30.0
    fallback: Fallback = "pause"
    concurrency: _Count = 16
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    dtype: Literal["float32", "bfloat16"] | None = None
    log_format: Literal["console", "json"] = "console"


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
    given = {name: value for name, value in flags.items() if value is not None}
    values |= _checked(given, "flags: ")
    return Settings(**values)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"{file}: {error.strerror}; name a readable settings file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{place}{str(error).replace('`$.', '`')}") from error
    return {name: getattr(settings, name) for name in values}


def _path(kind: type, value: Any) -> Any:
    return Path(value).expanduser() if kind is Path and isinstance(value, str) else value
