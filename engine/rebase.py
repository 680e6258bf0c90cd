"""Another base of the same model for a bundle, such as a quantized one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.bundle import Bundle, base_files, load_bundle, tokenizer_files, write_manifest
from engine.errors import BadBundle, NotWritten
from engine.manifest import FileEntry, Original, file_entry

Progress = Callable[[str, int, int, str], None]
"""Called with the stage, what of it is done, all of it, and a note."""

_MODEL: Final = (
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "num_hidden_layers",
    "layer_types",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "rms_norm_eps",
    "rope_parameters",
    "max_position_embeddings",
)
"""What two configurations of one model agree in, whatever became of the weights."""


def rebase(bundle: Bundle, base: Path, out: Path, on_progress: Progress) -> Bundle:
    """Make a bundle of another base and the adapter, head and tokenizer of this one.

    The adapter stays what it is; how much the answers change is measured, not known: see
    `engine.extract.verify`. The manifest names both bases.

    Args:
        bundle: One with an adapter.
        base: Folder of the other base, quantized in a way that vLLM reads, or not at all.
        out: The new bundle's folder; must not exist or be empty.
        on_progress: Told what is going on.

    Raises:
        BadBundle: There is no adapter, or the base is of another model.
        NotWritten: `out` is taken, or the disk is full.
    """
    base, out = base.resolve(), out.resolve()
    if bundle.adapter is None:
        raise BadBundle(f"{bundle.path}: it has no adapter, so its base is the tuned model itself")
    _check_model(bundle, base)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise NotWritten(f"{out} is not empty; choose another --out or remove it")
    work = out.with_name(f".{out.name}.rebase")
    known: dict[Path, FileEntry] = {}
    names = base_files(base)
    for index, name in enumerate(names):
        on_progress("hashing the base (files)", index, len(names), name)
        known[base / name] = file_entry(base / name)
    on_progress("hashing the base (files)", len(names), len(names), "")
    manifest = bundle.manifest
    try:
        shutil.rmtree(work, ignore_errors=True)
        folders: dict[str, Path] = {}
        for name, part in manifest.parts().items():
            if name != "base":
                folders[name] = work / name
                folders[name].mkdir(parents=True)
                names = tokenizer_files(bundle.tokenizer) if name == "tokenizer" else part.files
                for file in names:
                    shutil.copyfile(bundle.path / part.path / file, folders[name] / file)
        write_manifest(
            work,
            name=f"{bundle.name} on {base.name}",
            base=base,
            head=folders["head"],
            tokenizer=folders["tokenizer"],
            adapter=folders["adapter"],
            arbitrary=bundle.arbitrary,
            extraction=manifest.extraction,
            original=manifest.original or Original(str(bundle.base), manifest.base.hash),
            known=known,
        )
        work.rename(out)
    except OSError as error:
        raise NotWritten(f"{out}: {error.strerror}; make room or choose another --out") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return load_bundle(out)


def _check_model(bundle: Bundle, base: Path) -> None:
    mine, other = _text_config(bundle.base), _text_config(base)
    for key in _MODEL:
        if mine.get(key) != other.get(key):
            raise BadBundle(
                f"{base}: {key} is {other.get(key)}, the bundle's base has {mine.get(key)}; "
                "give another base of the same model"
            )


def _text_config(base: Path) -> dict[str, Any]:
    path = base / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise BadBundle(f"{path}: {error.strerror}; give a folder of model weights") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBundle(f"{path}: {error}; copy the file again") from error
    return config.get("text_config", config)
