"""Make the small random model: a bundle in the release's layout whose choices mean nothing.

    python tools/make_bundle.py --out FOLDER [--seed N]

It runs the whole path (tokenizer, base, adapter, head) on a machine without large weights. The same
seed gives the same bytes. A folder that is up to date is left alone; two calls at once wait for
one another.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

from game_texts import game_texts

from engine.bundle import load_bundle
from engine.errors import BadBundle

SOURCES = (
    "make_bundle.py",
    "game_texts.py",
    "small_tokenizer.py",
    "random_model.py",
    "release_layout.py",
)
RECIPE = "recipe.sha256"
"""In the bundle's folder: what it was made from; see `recipe_of`."""


def main() -> str | None:
    """Make the bundle unless it is there; give what went wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the bundle's folder")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another model")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with (out.parent / f".{out.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = _make(out, arguments.seed)
    except OSError as error:
        return f"{error.filename or out}: {error.strerror}; choose a folder that can be written"
    except NotOurs:
        return f"{out} holds something that this tool did not make; choose another folder"
    if result is not None:
        print(result)
    return None


class NotOurs(Exception):
    """The folder holds something else."""


def _make(out: Path, seed: int) -> str | None:
    """Make the bundle and say what it is, or do nothing if it is up to date."""
    texts = list(game_texts())
    recipe = recipe_of(texts, seed)
    if _is_up_to_date(out, recipe):
        return None
    if out.exists() and not (out / RECIPE).exists() and any(out.iterdir()):
        raise NotOurs
    started = time.monotonic()
    staged = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        staged.chmod(0o755)
        _build(staged, texts, seed)
        (staged / RECIPE).write_text(recipe + "\n")
        if out.exists():
            shutil.rmtree(out)
        staged.rename(out)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    _progress("")
    return (
        f"small random model {load_bundle(out).hash} made in "
        f"{time.monotonic() - started:.0f} s: {out}\n"
        "Its weights are random: its choices are arbitrary."
    )


def recipe_of(texts: list[str], seed: int) -> str:
    """Give a hash of all that the bundle depends on: texts, seed, and the tools that make it."""
    digest = hashlib.sha256(f"{seed}\n".encode())
    for name in SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _is_up_to_date(out: Path, recipe: str) -> bool:
    try:
        same = (out / RECIPE).read_text().strip() == recipe
        return same and load_bundle(out) is not None
    except (OSError, BadBundle):
        return False


def _build(folder: Path, texts: list[str], seed: int) -> None:
    _progress("small random model: tokenizer from the games' texts ...")
    import random_model
    from release_layout import config
    from small_tokenizer import ENTRIES, write_tokenizer

    from engine.adapter import write_adapter
    from engine.bundle import base_hash, write_manifest
    from engine.extract.recorded import record_answer

    base, head, tokenizer = folder / "base", folder / "head", folder / "tokenizer"
    for part in (base, head, tokenizer):
        part.mkdir()
    token_ids = write_tokenizer(tokenizer, texts, window=random_model.SIZES.window)
    _progress("small random model: weights ...")
    rows = -(-ENTRIES // 64) * 64
    configuration = config(random_model.SIZES, vocab_size=rows, token_ids=token_ids)
    random_model.write_base(base, configuration, seed=seed)
    random_model.write_head(head, seed=seed)
    write_adapter(
        folder / "adapter",
        random_model.adapter_factors(seed=seed),
        rank=random_model.RANK,
        base=base_hash(base),
    )
    bundle = write_manifest(
        folder,
        name=f"small random model (seed {seed})",
        base=base,
        head=head,
        tokenizer=tokenizer,
        adapter=folder / "adapter",
        arbitrary=True,
    )
    _progress("small random model: its answer to the fixed question ...")
    record_answer(bundle)


def _progress(text: str) -> None:
    """Replace the line on a terminal; elsewhere only the result is of interest."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
