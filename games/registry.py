"""Games by name: the built-in ones, those of installed packages, and those of other libraries.

A package adds a game with an entry point in the group `ostinato.games`; its object is called with
the parameters of the id, as strings, and gives a Game. The parameter `layout` may name one layout
for each seat, `tictactoe(layout=plain+bare)`: the object is then called for each of them.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from inspect import signature

from games.base import Game
from games.errors import BadGameParameters, UnknownGame, UnsupportedGame
from games.layouts import Mixed, split_layouts

BUILT_IN = {
    "tictactoe": "games.tictactoe:load",
    "kuhn_poker": "games.kuhn_poker:load",
    "expedition": "games.expedition:load",
    "holdem": "games.adapters.holdem:load",
}
RECORDED = {
    "systemone": "games.systemone:load",
}
"""What is recorded like a match but has no rules."""

LIBRARIES = {
    "openspiel": "games.adapters.openspiel:load",
    "pettingzoo": "games.adapters.pettingzoo:load",
}
GROUP = "ostinato.games"

_ID = re.compile(r"(?P<name>[\w-]+)(?:\((?P<parameters>[^()]*)\))?")


def load_game(id: str) -> Game:
    """Give the game of an id: `NAME`, `NAME(key=value,...)`, or `LIBRARY:NAME...`.

    Raises:
        UnknownGame: No such game; the message names near ones.
        BadGameParameters: It does not take these parameters.
        UnsupportedGame: The library is missing, or its game does not fit the protocol.
    """
    text, names = split_layouts(id)
    load = partial(_in_library if ":" in text and id.isprintable() else _by_name, id, text)
    if not names:
        return load()
    games = {name: load(layout=name) for name in dict.fromkeys(names)}
    return Mixed(games, names) if len(games) > 1 else games[names[0]]


def load_recorded(id: str) -> Game:
    """Give the game of a recorded match, which may be one that cannot be played.

    Raises:
        GamesError: As `load_game`.
    """
    return _object(RECORDED[id])() if id in RECORDED else load_game(id)


def game_names() -> list[str]:
    """Give the names of all games but those of libraries, in order."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def _in_library(id: str, text: str, **layout: str) -> Game:
    library, _, rest = text.partition(":")
    if library not in LIBRARIES:
        known = ", ".join(f"{name}:NAME" for name in LIBRARIES)
        raise UnknownGame(f"no library {library!r} for game {id!r}; there is {known}")
    return _object(LIBRARIES[library])(rest, **layout)


def _by_name(id: str, text: str, **layout: str) -> Game:
    found = _ID.fullmatch(text)
    if found is None:
        raise BadGameParameters(f"{id!r} is not a game's id; write NAME or NAME(key=value,...)")
    name, parameters = found["name"], _parameters(id, found["parameters"] or "") | layout
    factory = _factory(name)
    takes = signature(factory)
    try:
        takes.bind(**parameters)
    except TypeError as error:
        known = ", ".join(takes.parameters) or "no parameters"
        raise BadGameParameters(f"{id}: {name} takes {known}: {error}") from error
    return factory(**parameters)


def _factory(name: str) -> Callable[..., Game]:
    if name in BUILT_IN:
        return _object(BUILT_IN[name])
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise UnsupportedGame(
                f"game {name!r} of {point.value} cannot be loaded: {error}; repair or remove its"
                " package"
            ) from error
    if name in RECORDED:
        raise UnsupportedGame(
            f"{name} is what clients of a server asked: it can be replayed and put to another"
            " model, not played"
        )
    near = difflib.get_close_matches(name.lower(), game_names(), n=3)
    hint = f"did you mean {' or '.join(near)}" if near else f"known are {', '.join(game_names())}"
    raise UnknownGame(f"no game {name!r}; {hint}, or openspiel:NAME, pettingzoo:NAME")


def _parameters(id: str, text: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier() or key in parameters:
            raise BadGameParameters(f"{id}: {item!r} is not key=value, or comes twice")
        parameters[key] = value
    return parameters


def _object(place: str) -> Callable[..., Game]:
    """Import late: a game that nobody plays costs nothing, and a library may be missing."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
