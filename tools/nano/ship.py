"""Make the bundle that ships: extracted by the product's own tool, its base inside, a model card.

    python -m tools.nano.ship --data DATA --run RUN --out OUT [--figures FIGURES.json]

OUT/bundle is made from OUT/base and OUT/tuned (`tools.nano.train write`). FIGURES is what
`ostinato bench nano --json` said of it; without it the card says that nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.bundle import Bundle, load_bundle, write_manifest
from engine.extract.job import Options, extract
from engine.extract.recorded import record_answer
from tools.nano.card import card

MOST_BYTES: Final = 16_000_000
CARD: Final = "MODEL_CARD.md"


def ship(base: Path, tuned: Path, out: Path, *, rank: int | None, name: str) -> Bundle:
    """Extract a bundle, and move the base into it, so that it stands alone.

    Args:
        base: In the release's layout.
        tuned: Likewise, with the head.
        out: The bundle's folder; replaced if it is there.
        rank: The adapter's; None: what `ostinato extract` finds.
        name: What people call the model.

    Raises:
        EngineError: As `ostinato extract` does.
        SystemExit: The bundle is larger than may ship.
    """
    shutil.rmtree(out, ignore_errors=True)
    options = Options(rank=rank, name=name)
    made = extract(base, tuned, out, options, lambda stage, done, total, note: None)
    inside = out / "base"
    inside.mkdir()
    for file in made.manifest.base.files:
        shutil.copyfile(base / file, inside / file)
    extraction = made.manifest.extraction
    assert extraction is not None
    bundle = write_manifest(
        out,
        name=name,
        base=inside,
        head=out / "head",
        tokenizer=out / "tokenizer",
        adapter=out / "adapter",
        # where the tuned weights were is nobody else's concern
        extraction=msgspec.structs.replace(extraction, tuned=tuned.name),
    )
    if unrecorded := record_answer(bundle):
        raise SystemExit(f"{out}: no recorded answer ({unrecorded}); mend that and ship again")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if size >= MOST_BYTES:
        raise SystemExit(f"{out}: {size:,} bytes, {MOST_BYTES:,} are too many; make it smaller")
    return load_bundle(out)


def main() -> None:
    """Ship, and say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rank", type=int, help="of the adapter; found by the extraction if left")
    parser.add_argument("--name", default="nano")
    parser.add_argument("--figures", type=Path, help="of `ostinato bench nano --json`")
    arguments = parser.parse_args()
    out: Path = arguments.out
    bundle = ship(
        out / "base", out / "tuned", out / "bundle", rank=arguments.rank, name=arguments.name
    )
    records = [
        json.loads((arguments.run / f"{stage}-record.json").read_text())
        for stage in ("base", "decide")
    ]
    figures: dict[str, Any] | None = None
    if arguments.figures:
        figures = json.loads(arguments.figures.read_text())
    (bundle.path / CARD).write_text(card(bundle, *records, figures=figures))
    print(f"{bundle.path}: {bundle.hash}")


if __name__ == "__main__":
    main()
