"""Gets a release from the hub: at its pinned commit, resumable, every file hashed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import BadWeights, EngineMissing, HubUnavailable, NotWritten
from engine.manifest import FileEntry, file_entry
from engine.release import Release

Progress = Callable[[str, int, int, str], None]
"""Called with the stage, what of it is done, all of it, and a note."""

_PATIENCE: Final = 10.0  # seconds for the hub's first answer
_MB: Final = 10**6


def fetch(
    release: Release, folder: Path, on_progress: Progress, *, endpoint: str | None = None
) -> None:
    """Download what of a release is missing in a folder, then hash all of it.

    The small files have to have the digests that are pinned here, the shards of the weights those
    that the hub names for the pinned commit. The same call goes on after an interruption.

    Args:
        release: What to get.
        folder: Where to; made if need be.
        on_progress: Told what is going on.
        endpoint: Address of the hub; None: the public one, or the user's `HF_ENDPOINT`.

    Raises:
        EngineMissing: huggingface_hub is not installed.
        HubUnavailable: The hub gives no answer, or refuses.
        BadWeights: A file has another digest; it is removed, and the next call gets it again.
        NotWritten: There is no room, or the folder may not be written.
    """
    try:
        # whatever a connection or an answer can fail of, in the HTTP library that it uses
        from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]
    except ImportError as error:
        raise EngineMissing(
            "huggingface_hub is not installed; pip install 'ostinato[fetch]'"
        ) from error
    try:
        wanted = _wanted(release, endpoint)
        _check_room(folder, wanted)
        total = sum(entry.size for entry in wanted.values())
        done = 0
        for name, entry in wanted.items():
            if not (folder / name).exists():
                _download(
                    release,
                    name,
                    folder / name,
                    entry.size,
                    lambda got, name=name, before=done: on_progress(
                        "downloading (MB)", (before + got) // _MB, total // _MB, name
                    ),
                    endpoint,
                )
            done += entry.size
        on_progress("downloading (MB)", total // _MB, total // _MB, "")
    except HTTPError as error:
        raise HubUnavailable(
            f"{release.repository}: {_reason(error)}; the same command goes on where it stopped"
        ) from error
    except OSError as error:
        if error.errno is None:  # what came is not as long as was said
            raise HubUnavailable(f"{release.repository}: {error}") from error
        raise NotWritten(f"{folder}: {error}; choose another --out or make room") from error
    _verify(folder, wanted, on_progress)


def _wanted(release: Release, endpoint: str | None) -> dict[str, FileEntry]:
    """List the files to get, with size and digest, small ones first."""
    import huggingface_hub

    api = huggingface_hub.HfApi(endpoint=endpoint)
    info = api.model_info(
        release.repository, revision=release.revision, files_metadata=True, timeout=_PATIENCE
    )
    if info.sha != release.revision:
        raise HubUnavailable(
            f"{release.repository}: the hub gives commit {info.sha}, pinned is {release.revision}"
        )
    found: dict[str, FileEntry] = {}
    for file in info.siblings or []:
        digest = release.digests.get(file.rfilename)
        if digest is None and file.rfilename.startswith("model-") and file.lfs is not None:
            digest = file.lfs.sha256
        if digest is not None and file.size is not None:
            found[file.rfilename] = FileEntry(file.size, digest)
    absent = sorted(release.digests.keys() - found.keys())
    if absent:
        raise HubUnavailable(
            f"{release.repository}: the hub lists no {absent[0]} at the pinned commit"
        )
    return dict(sorted(found.items(), key=lambda item: (item[1].size, item[0])))


def _download(
    release: Release,
    name: str,
    path: Path,
    size: int,
    on_bytes: Callable[[int], None],
    endpoint: str | None,
) -> None:
    """Get one file beside its place, or the rest of it, then move it there.

    The hub's library for whole files begins them anew after an interruption; its function for one
    transfer does not, and takes up broken connections as well.
    """
    import huggingface_hub
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    part = path.with_name(f".{name}.part")
    if part.exists() and part.stat().st_size > size:
        part.unlink()
    with part.open("ab") as file:
        http_get(
            huggingface_hub.hf_hub_url(
                release.repository, name, revision=release.revision, endpoint=endpoint
            ),
            file,
            resume_size=file.tell(),
            headers=build_hf_headers(),
            expected_size=size,
            displayed_filename=name,
            tqdm_class=_bar(on_bytes),
        )
    part.replace(path)


def _check_room(folder: Path, wanted: dict[str, FileEntry]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    here = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    missing = sum(entry.size for entry in wanted.values()) - here
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise NotWritten(
            f"{folder}: {missing / 1e9:.1f} GB are still to come, {free / 1e9:.1f} GB are free; "
            "make room or choose another --out"
        )


def _verify(folder: Path, wanted: dict[str, FileEntry], on_progress: Progress) -> None:
    total = sum(entry.size for entry in wanted.values())
    done = 0
    for name, entry in wanted.items():
        on_progress("hashing (MB)", done // _MB, total // _MB, name)
        if file_entry(folder / name) != entry:
            (folder / name).unlink()
            raise BadWeights(
                f"{folder / name}: it has not the release's SHA-256 ({entry.sha256[:12]}...) and "
                "was removed; run the same command again"
            )
        done += entry.size
    index = msgspec.json.decode((folder / "model.safetensors.index.json").read_bytes())
    absent = sorted(set(index["weight_map"].values()) - wanted.keys())
    if absent:
        raise BadWeights(f"{folder}: the hub has no {absent[0]}, which the index names")
    on_progress("hashing (MB)", total // _MB, total // _MB, "")


def _reason(error: BaseException) -> str:
    response: Any = getattr(error, "response", None)
    if response is not None:
        return f"the hub answers {response.status_code}"
    return f"the hub cannot be reached ({str(error).splitlines()[0] or type(error).__name__})"


def _bar(on_bytes: Callable[[int], None]) -> Any:
    """Make the class of a bar that the hub's library fills and nobody sees."""
    from huggingface_hub.utils import tqdm

    class Counter(tqdm):  # pyright: ignore[reportUntypedBaseClass]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"disable": True})
            self.got = int(options.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.got += int(n or 0)
            on_bytes(self.got)

    return Counter
