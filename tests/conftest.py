from __future__ import annotations

import os

import pytest

# One thread each: vLLM, torch and the BLAS behind numpy slow down many times when they share cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio only; nats-py has no other backend."""
    return "asyncio"
