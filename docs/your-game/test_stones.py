from stones import Stones

from games.testing import check


def test_every_law_is_kept():
    assert check(Stones(11)).positions == 22
