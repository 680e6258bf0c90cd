"""OpenSpiel games by name: what the protocol can hold, and why it cannot hold the others."""

from __future__ import annotations

import difflib
import importlib
import subprocess
import sys
from typing import TYPE_CHECKING

from games.adapters.chess_text import require_position, split_start
from games.errors import BadGameParameters, UnknownGame, UnsupportedGame

if TYPE_CHECKING:
    import pyspiel

MAX_SEATS = 10

# What no fact about a game tells, found by playing it; games.testing.check finds it again.
UNFIT = {
    "morpion_solitaire": "its labels hold memory that was never written, so that a match could not"
    " be replayed",
    "coordinated_mp": "its text of what a player knows keeps back what every player has seen",
    "chat_game": "it offers more actions than it has numbers for",
    "python_liars_poker": "its text of what a player knows tells the cards of others",
}

# These do not refuse some of their parameters but end the process, or never come back.
PROBED = frozenset(
    (
        *("blotto", "connect_four", "dark_chess", "first_sealed_auction", "gomoku", "hanabi"),
        *("havannah", "negotiation", "pig", "quoridor", "rbc", "sheriff", "snake", "trade_comm"),
        *("universal_poker", "y", "yacht"),
    )
)
PROBE_S = 10  # what it may take to load a game in a fresh process on a slow machine

_PROBE = """
import sys, pyspiel
game = pyspiel.load_game(sys.argv[1])
state = game.new_initial_state()
if game.get_type().provides_observation_string:
    state.observation_string(0)
game.max_history_length(), game.min_utility(), str(state), state.legal_actions()
"""


def find_game(text: str) -> tuple[pyspiel.Game, str | None]:
    """Give an OpenSpiel game as it is, and for chess the position to start from, if one is named.

    Args:
        text: As OpenSpiel writes it, `go(board_size=9)`; chess takes `fen=` besides.

    Raises:
        UnknownGame: OpenSpiel has no such game.
        BadGameParameters: The game does not take these parameters.
        UnsupportedGame: OpenSpiel is not installed, or the game does not fit the protocol.
    """
    try:
        import pyspiel
    except ImportError as error:
        raise UnsupportedGame(
            f"openspiel:{text} needs OpenSpiel; install it with pip install 'ostinato[openspiel]'"
        ) from error
    id, (text, start) = f"openspiel:{text}", split_start(text)
    _require_name(text.partition("(")[0])
    _require_survived(id, text)
    try:
        game = pyspiel.load_game(text)
        if start is not None:
            require_position(game, start)
    except Exception as error:  # games check their parameters in many ways
        raise BadGameParameters(f"{id}: {_said(error)}") from error
    reason = unsupported(game)
    if reason:
        raise UnsupportedGame(f"{id} cannot be played: {reason}")
    try:
        _look_at(in_turns(game).new_initial_state())
    except Exception as error:
        raise BadGameParameters(f"{id} cannot start: {_said(error)}") from error
    return game, start


def unsupported(game: pyspiel.Game) -> str | None:
    """Say why the protocol cannot hold a game, or None."""
    import pyspiel

    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        return "it is a mean-field game, which has no match between seats"
    if game.get_type().short_name in UNFIT:
        return UNFIT[game.get_type().short_name]
    kind = in_turns(game).get_type()
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        return "it draws chance inside itself, so that a match could not be replayed"
    if game.num_players() > MAX_SEATS:
        return f"it has {game.num_players()} players, and a match has at most {MAX_SEATS}"
    if not game.num_distinct_actions():
        return "its actions have no numbers"
    perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    strings = kind.provides_information_state_string or kind.provides_observation_string
    if not perfect and not strings:
        return "OpenSpiel has no text of what a player knows"
    return None


def in_turns(game: pyspiel.Game) -> pyspiel.Game:
    """Give a game whose players act one after the other; most are so already."""
    import pyspiel

    if game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        return pyspiel.convert_to_turn_based(game)
    return game


def _look_at(state: pyspiel.State) -> None:
    """Ask a first state for all that a match will ask of it."""
    actions = state.legal_actions()
    if not actions and not state.is_terminal():
        raise ValueError("its first position has no legal action")
    for action in actions:
        state.action_to_string(state.current_player(), action)
    str(state)


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _require_survived(id: str, text: str) -> None:
    """Raise BadGameParameters for parameters that end the process; a child tries them first."""
    name, parameters, _ = text.partition("(")
    if not parameters or name not in PROBED:
        return
    command = [sys.executable, "-c", _PROBE, text]
    try:
        code = subprocess.run(command, capture_output=True, timeout=PROBE_S).returncode
    except subprocess.TimeoutExpired:
        code = -1
    if code < 0:
        raise BadGameParameters(
            f"{id}: OpenSpiel ends the process, or never answers, over these parameters; take"
            " others"
        )


def _require_name(name: str) -> None:
    import pyspiel

    if name in pyspiel.registered_names():
        return
    importlib.import_module("open_spiel.python.games")  # the import registers those in Python
    names = pyspiel.registered_names()
    if name not in names:
        near = difflib.get_close_matches(name.lower(), names, n=3)
        hint = f"did you mean {' or '.join(near)}" if near else f"it has {len(names)} others"
        raise UnknownGame(f"OpenSpiel has no game {name!r}; {hint}")
