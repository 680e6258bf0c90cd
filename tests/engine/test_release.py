from __future__ import annotations

import re

import pytest

from engine.release import HEAD, RELEASES, likeness


def test_releases_are_pinned() -> None:
    assert list(RELEASES) == ["clef", "clef-flash"]
    for release in RELEASES.values():
        assert re.fullmatch("[0-9a-f]{40}", release.revision)
        assert len(release.digests) == 8
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in release.digests.values())


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_known_by_its_head(name: str) -> None:
    digests = RELEASES[name].digests
    found = likeness(digests)
    assert found.release == RELEASES[name]
    assert (len(found.same), found.different) == (8, [])

    altered = digests | {"config.json": "0" * 64, "other.json": "1" * 64}
    found = likeness(altered)
    assert (found.release, found.different) == (RELEASES[name], ["config.json"])

    found = likeness(digests | {HEAD: "0" * 64})  # its tokenizer is many models'
    assert (found.release, found.same, found.different) == (None, [], [])
