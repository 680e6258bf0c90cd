from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.loggers import logging_kept

# How long an example takes says more of the machine than of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# One thread each: vLLM, torch and the BLAS behind numpy slow down many times when they share cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio only; nats-py has no other backend."""
    return "asyncio"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Let no test depend on what those before it did to logging."""
    with logging_kept():
        yield
