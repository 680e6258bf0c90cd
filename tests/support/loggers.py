"""What a test may do to logging, which is one for the whole process, and what it leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = ("games", "store", "engine", "runtime")


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in PACKAGES:
            yield logger


@contextmanager
def logging_kept() -> Iterator[None]:
    """Put back what commands, libraries and tests within change of the root and our loggers."""
    off = logging.root.manager.disable
    levels = [(handler, handler.level) for handler in logging.getLogger().handlers]
    before = {
        logger: (list(logger.handlers), logger.level, logger.propagate, logger.disabled)
        for logger in _loggers()
    }
    try:
        yield
    finally:
        logging.disable(off)
        for handler, level in levels:
            handler.setLevel(level)
        for logger in _loggers():
            handlers, level, propagate, disabled = before.get(
                logger, ([], logging.NOTSET, True, False)
            )
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled
