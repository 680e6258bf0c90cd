"""A journey across a map: long fixed rules, five turns between decisions, an exact optimum."""

from games.expedition.game import SIZES as SIZES
from games.expedition.game import Expedition as Expedition
from games.expedition.game import ExpeditionState as ExpeditionState
from games.expedition.game import load as load
