"""What the engine process gets to know, and its tie to the process that started it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import select
import threading
from typing import Any

KEY = "ostinato"
"""Under this name plans travel in `extra_args`, and outcomes in `kv_transfer_params`."""


@dataclasses.dataclass(frozen=True)
class EngineSettings:
    """Travels in vLLM's `additional_config` to every process of the engine.

    Attributes:
        head: Path of the head's tensors.
        head_config: Sizes of the head, as in the release's `joint_head_config.json`.
        features: How head features are kept: "float32", "float16" or "bfloat16".
        chat_share: Chat's part of a step where decisions want all of it too, and of its sequences.
        short: Tokens that a question alone on its state reads without a stop for later ones.
        home: Process that made these settings.
    """

    head: str
    head_config: dict[str, int]
    features: str = "float32"
    chat_share: float = 0.25
    short: int = 0
    home: int = dataclasses.field(default_factory=os.getpid)

    def compute_hash(self) -> str:
        """Name what could change a compiled graph, as vLLM asks: nothing here does."""
        return hashlib.sha256(b"ostinato").hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (
            self.head,
            self.head_config,
            self.features,
            self.chat_share,
            self.short,
            self.home,
        )


def _arrive(
    head: str,
    head_config: dict[str, int],
    features: str,
    chat_share: float,
    short: int,
    home: int,
) -> EngineSettings:
    """Make the settings again; in another process than theirs, end it when theirs ends.

    Arrival is the first moment in an engine process that is ours. vLLM does not notice when its
    front end is killed: the engine would keep its memory for ever.
    """
    if os.getpid() != home:
        try:
            handle = os.pidfd_open(home)
        except ProcessLookupError:  # killed while this process was starting
            os._exit(1)

        def outlive_nobody() -> None:
            select.select([handle], [], [])
            os._exit(1)

        threading.Thread(target=outlive_nobody, name="home-watch", daemon=True).start()
    return EngineSettings(head, head_config, features, chat_share, short, home)
