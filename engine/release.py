"""The released decision models: where they are, and the digests of their files.

The digests of the small files are as published by a tool that pins them; those of the configuration
and of the head's sizes were checked by writing the same bytes from their content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

HEAD: Final = "joint_head.safetensors"
"""The file that makes a release what it is: base and tokenizer are other people's too."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One released model.

    Attributes:
        name: As people call it.
        repository: On the hub.
        revision: The commit that is meant.
        digests: SHA-256 by file name, of all but the shards of the weights.
    """

    name: str
    repository: str
    revision: str
    digests: dict[str, str]


class Likeness(msgspec.Struct, frozen=True):
    """What of some files is a release's.

    Attributes:
        release: The one whose head it is; None if it is nobody's.
        same: Files that are the release's.
        different: Files that have the name of a file of the release, and other content.
    """

    release: Release | None
    same: list[str]
    different: list[str]


_SHARED = {
    "tokenizer.json": "06b9509352d2af50381ab2247e083b80d32d5c0aba91c272ca9ff729b6a0e523",
    "tokenizer_config.json": "91a08f825d370d085d692e04cf117cdd7faad7bf18e996f1e6031b6dab03db72",
    "processor_config.json": "d89ef49ce9cd37fbf510158e13c1ef063d9286411c1ec9049932dbe0487143b1",
}

RELEASES: Final = {
    "clef": Release(
        name="clef",
        repository="Cloudflare/clef",
        revision="2f3de3dd85f379784083b0814d997ab627200f0c",
        digests=_SHARED
        | {
            "config.json": "c42e88892bd3fd84e8276b2ad90df58c1c3b797676ea161035006a72ad468c58",
            "model.safetensors.index.json": (
                "a600c6626eb1eb653a3f078ab3dd1c7a8fab2e71185c7ef3aa923a39aaa637be"
            ),
            "joint_head_config.json": (
                "890be585d75b981201eb96a35f98a9967afe37bc8d220cfdea2e72d56507534f"
            ),
            HEAD: "a010ac04f078e699988e4049cbea5e62c962393f59fec366640b64e8d69a4953",
            "chat_template.jinja": (
                "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041"
            ),
        },
    ),
    "clef-flash": Release(
        name="clef-flash",
        repository="Cloudflare/clef-flash",
        revision="17f0b0ad64efb65d273590632833508766b2aae6",
        digests=_SHARED
        | {
            "config.json": "66f87f6fb2616b46604daf2a9c67ddc87938296d07156efa34d59b5be49e3238",
            "model.safetensors.index.json": (
                "941305ff9f77551e145a6cea976ef456cd5cb208cbece99f168376c752fcf96c"
            ),
            "joint_head_config.json": (
                "77efe959a38b5b17b241543e129e695f3c77465ece55a25985279bd8176279a0"
            ),
            HEAD: "19cdcec8c81dc9212be320fff47462ab342fbc1278be4368fb3da71241cf5ba0",
            "chat_template.jinja": (
                "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715"
            ),
        },
    ),
}


def likeness(digests: Mapping[str, str]) -> Likeness:
    """Compare files, by name and SHA-256, with the release whose head is among them."""
    release = next((r for r in RELEASES.values() if digests.get(HEAD) == r.digests[HEAD]), None)
    if release is None:
        return Likeness(None, [], [])
    known = [name for name in release.digests if name in digests]
    same = [name for name in known if digests[name] == release.digests[name]]
    return Likeness(release, same, [name for name in known if name not in same])
