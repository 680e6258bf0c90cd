"""Games: the protocol, the ones that ship, and the way to all others."""

from __future__ import annotations

from games.base import CHANCE, MAX_OPTIONS, Game, GameFacts, Outcome, State, View
from games.errors import (
    BadGameParameters,
    ConformanceError,
    GamesError,
    IllegalAction,
    NotYourTurn,
    UnknownGame,
    UnsupportedGame,
)
from games.questions import Answer, Option, Question, QuestionType, choice, noul, score
from games.registry import game_names, load_game

__all__ = [
    "CHANCE",
    "MAX_OPTIONS",
    "Answer",
    "BadGameParameters",
    "ConformanceError",
    "Game",
    "GameFacts",
    "GamesError",
    "IllegalAction",
    "NotYourTurn",
    "Option",
    "Outcome",
    "Question",
    "QuestionType",
    "State",
    "UnknownGame",
    "UnsupportedGame",
    "View",
    "choice",
    "game_names",
    "load_game",
    "noul",
    "score",
]
