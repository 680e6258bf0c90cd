import anyio
import eager  # noqa: F401 - the package has to be installed
import pytest

from runtime.trial import GAMES, try_agent


@pytest.mark.parametrize("agent", ["eager", "eager:word=cell", "sure:least=0.2"])
def test_every_law_is_kept(agent):
    anyio.run(lambda: try_agent(agent, GAMES, seeds=2, deadline_s=10))
