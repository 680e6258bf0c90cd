from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bundle import Bundle, load_bundle
from engine.errors import BadWeights, NotWritten
from engine.extract.job import Options, Refused, extract
from tests.support.bundles import ORACLE

BASE, TUNED = ORACLE / "base", ORACLE / "clef"
CHANGED = json.loads((ORACLE / "truth" / "changed_tensors.json").read_text())["tensors"]
SECOND = "model-00002-of-00002.safetensors"
UP = "model.language_model.layers.5.mlp.up_proj.weight"


def quiet(*_: Any) -> None:
    pass


def run(out: Path, base: Path = BASE, tuned: Path = TUNED, **options: Any) -> Bundle:
    return extract(base, tuned, out, Options(**options), quiet)


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A copy of the tuned model, free to be damaged."""
    return Path(shutil.copytree(TUNED, tmp_path / "tuned"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BASE, tmp_path / "base"))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change tensors of the tuned model's second shard, and its index with them."""
    tensors = load_file(folder / SECOND)
    change(tensors)
    save_file(tensors, folder / SECOND, metadata={"format": "pt"})
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    others = {name: file for name, file in index["weight_map"].items() if file != SECOND}
    index["weight_map"] = others | dict.fromkeys(tensors, SECOND)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def delta(name: str) -> torch.Tensor:
    old = load_file(BASE / "model-00002-of-00003.safetensors")[name]
    return load_file(TUNED / SECOND)[name].float() - old.float()


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(("dtype", "slack"), [("float32", 1.01), ("bfloat16", 1.10)])
def test_factors_are_as_good_as_their_rank_allows(dtype: str, slack: float, tmp_path: Path) -> None:
    bundle = run(tmp_path / "b", dtype=dtype)
    assert bundle.adapter_rank == 8
    assert bundle.manifest.extraction is not None
    found = bundle.manifest.extraction.matrices
    assert sorted(found) == sorted(CHANGED)
    assert bundle.adapter is not None
    tensors = load_file(bundle.adapter / "adapter_model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {f"torch.{dtype}"}
    rounding = 0.004 if dtype == "bfloat16" else 1e-6  # all that is left of a whole matrix
    for name in CHANGED:
        change = delta(name)
        module = f"base_model.model.{name.removesuffix('.weight')}"
        a, b = (tensors[f"{module}.lora_{part}.weight"].float() for part in "AB")
        assert (len(a), b.shape[1]) == (8, 8)
        error = torch.linalg.norm(change - b @ a)
        best = torch.linalg.svdvals(change)[8:].square().sum().sqrt()
        assert error <= slack * best + rounding * torch.linalg.norm(change) * (len(change) == 4)
        assert found[name].change == pytest.approx(float(error / change.norm()), rel=1e-3, abs=1e-6)
        assert found[name].rank == (4 if len(change) == 4 else 8)


def test_a_bundle_is_made_of_the_base_and_the_tuned_model_s_head(tmp_path: Path) -> None:
    bundle = run(tmp_path / "b", name="mine")
    assert bundle == load_bundle(tmp_path / "b")
    assert (bundle.name, bundle.base) == ("mine", BASE)
    assert bundle.head.read_bytes() == (TUNED / "joint_head.safetensors").read_bytes()
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (bundle.tokenizer / name).read_bytes() == (TUNED / name).read_bytes()
    report = (tmp_path / "b" / "report.md").read_text()
    assert "23 matrices changed; common rank 8." in report
    assert ("No answer to the fixed question" in report) == (not bundle.manifest.answer)
    drawing = (tmp_path / "b" / "singular_values.svg").read_text()
    assert drawing.count("<polyline") == 23
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_the_same_command_again_finds_its_result(tmp_path: Path) -> None:
    first = run(tmp_path / "b")
    assert run(tmp_path / "b") == first
    with pytest.raises(NotWritten, match="is not empty; choose another --out"):
        run(tmp_path / "b", rank=16)


def test_a_higher_rank_is_padded_and_a_lower_one_refused(tmp_path: Path) -> None:
    assert run(tmp_path / "wide", rank=16).adapter_rank == 16
    with pytest.raises(Refused, match="19 tensors hold what no adapter of rank 4 can") as caught:
        run(tmp_path / "b", rank=4)
    assert {finding.what for finding in caught.value.findings} == {"a change of rank 8"}
    bundle = run(tmp_path / "b", rank=4, allow_residual=True)
    assert bundle.adapter_rank == 4
    assert bundle.manifest.extraction is not None
    values = torch.linalg.svdvals(delta(UP))
    left = (values[4:].square().sum() / values.square().sum()).sqrt()
    assert bundle.manifest.extraction.matrices[UP].change == pytest.approx(float(left), rel=0.01)


def test_a_piece_that_did_not_change_comes_along_where_vllm_wants_it(
    tuned: Path, tmp_path: Path
) -> None:
    still = "model.language_model.layers.5.linear_attn.in_proj_z"
    old = load_file(BASE / "model-00002-of-00003.safetensors")[f"{still}.weight"]
    edit(tuned, lambda tensors: tensors.update({f"{still}.weight": old}))
    bundle = run(tmp_path / "b", tuned=tuned)
    assert "22 matrices changed" in (bundle.path / "report.md").read_text()
    assert bundle.adapter is not None
    factors = load_file(bundle.adapter / "adapter_model.safetensors")
    pair = [factors[f"base_model.model.{still}.lora_{side}.weight"] for side in "AB"]
    assert [tuple(each.shape) for each in pair] == [(8, 128), (512, 8)]
    assert not any(each.any() for each in pair)


def noise(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP] += torch.randn(tensors[UP].shape).mul(0.02).bfloat16()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda t: t["model.language_model.norm.weight"].add_(1), "no adapter reaches it"),
        (lambda t: t["lm_head.weight"].mul_(2), "no adapter reaches it"),
        (
            lambda t: t["model.language_model.layers.5.linear_attn.conv1d.weight"].mul_(2),
            "no adapter reaches it",
        ),
        (lambda t: t.pop("model.language_model.norm.weight"), "missing from the tuned weights"),
        (lambda t: t.update(extra=torch.ones(3)), "missing from the base"),
        (lambda t: t.update({UP: t[UP][:-1].clone()}), r"\[255, 128\] tuned, \[256, 128\]"),
        (noise, "a change of full rank"),
    ],
)
def test_what_no_adapter_can_hold_is_refused_or_left_out(
    change: Callable[[Any], Any], what: str, tuned: Path, tmp_path: Path
) -> None:
    edit(tuned, change)
    with pytest.raises(Refused, match=f"1 tensors .*{what}.*--allow-residual") as caught:
        run(tmp_path / "b", tuned=tuned)
    (finding,) = caught.value.findings
    assert not (tmp_path / "b").exists()
    bundle = run(tmp_path / "b", tuned=tuned, allow_residual=True)
    assert finding.tensor in (bundle.path / "report.md").read_text()
    extraction = bundle.manifest.extraction
    assert extraction is not None
    left = extraction.left.get(finding.tensor)
    assert (left or extraction.matrices[finding.tensor].weight) == pytest.approx(finding.error)
    assert 0 < finding.error <= 1


def truncate(folder: Path) -> None:
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data[:-5])


def not_a_number(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP][3, 4] = float("nan")


def quantize(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, f"{SECOND}: .* bytes, its header says .*; copy the file again"),
        (lambda f: (f / SECOND).write_bytes(b"1234567"), f"{SECOND}: not a safetensors file"),
        (lambda f: (f / SECOND).unlink(), f"{SECOND}: No such file.*; copy the file again"),
        (lambda f: edit(f, not_a_number), f"{SECOND}: {UP} has values that are not finite"),
        (lambda f: (f / "joint_head.safetensors").unlink(), "no joint_head.safetensors in it"),
        (lambda f: (f / "joint_head_config.json").unlink(), "no joint_head_config.json in it"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json: Input data was truncated"),
        (quantize, "the weights are quantized"),
        (lambda f: edit(f, lambda t: t.update({UP: t[UP].char()})), f"{UP} is I8, so"),
        (lambda f: shutil.rmtree(f), "no such folder"),
    ],
)
def test_damaged_weights_are_named_and_leave_nothing(
    damage: Callable[[Path], Any], message: str, tuned: Path, tmp_path: Path
) -> None:
    damage(tuned)
    with pytest.raises(BadWeights, match=message) as caught:
        run(tmp_path / "b", tuned=tuned)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"tuned"}


def test_an_index_that_names_another_shard_is_refused(tuned: Path, tmp_path: Path) -> None:
    path = tuned / "model.safetensors.index.json"
    path.write_text(path.read_text().replace(SECOND, "model-00001-of-00002.safetensors"))
    with pytest.raises(BadWeights, match="tensors are not where it says"):
        run(tmp_path / "b", tuned=tuned)


def test_swapped_or_equal_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="swap --base and --tuned"):
        run(tmp_path / "b", base=TUNED, tuned=BASE)
    with pytest.raises(BadWeights, match="given as base and as tuned"):
        run(tmp_path / "b", base=TUNED, tuned=TUNED)


def test_nothing_changed_is_said(base: Path, tmp_path: Path) -> None:
    for name in ("joint_head.safetensors", "joint_head_config.json"):
        shutil.copy(TUNED / name, base)
    with pytest.raises(BadWeights, match="no tensor differs from the base"):
        run(tmp_path / "b", tuned=base)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("precious")
    with pytest.raises(NotWritten, match="is not empty"):
        run(tmp_path / "b")
    assert [path.name for path in tmp_path.rglob("*")] == ["b", "mine"]
    (tmp_path / "b" / "mine").unlink()
    run(tmp_path / "b")


def in_child(work: Callable[[], Any], *, killed_after: float | None = None) -> int:
    """Run something in a forked process, and perhaps kill it; gives how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except NotWritten:
            os._exit(3)
        os._exit(0)
    if killed_after is not None:
        time.sleep(killed_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    "moments", [4, pytest.param(20, marks=pytest.mark.long)], ids=lambda count: f"{count} moments"
)
def test_a_killed_run_is_taken_up_and_ends_the_same(moments: int, tmp_path: Path) -> None:
    started = time.monotonic()
    run(tmp_path / "b")
    duration = time.monotonic() - started
    undisturbed = hashes(tmp_path / "b")
    lots = random.Random(moments)
    killed = 0
    while killed < moments:
        shutil.rmtree(tmp_path / "b")
        moment = lots.uniform(0, duration)
        if in_child(lambda: run(tmp_path / "b"), killed_after=moment) == -signal.SIGKILL:
            killed += 1
        else:
            duration *= 0.9  # it was done before; the first run was a slow one
        run(tmp_path / "b")
        assert hashes(tmp_path / "b") == undisturbed
        assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_finished_matrices_are_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.extract import factors

    seen: list[str] = []
    real = factors.factor

    def spy(base: Any, tuned: Any, name: str, **options: Any) -> Any:
        if len(seen) == 10:
            seen.append("stop")
            raise KeyboardInterrupt
        seen.append(name)
        return real(base, tuned, name, **options)

    monkeypatch.setattr(factors, "factor", spy)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    run(tmp_path / "b")
    assert sorted(name for name in seen if name != "stop") == sorted(CHANGED)


def test_a_full_disk_is_named_and_room_lets_it_go_on(tmp_path: Path) -> None:
    def limited() -> None:
        # as on a full disk, a write fails in the middle of a file
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        run(tmp_path / "b")

    assert in_child(limited) == 3
    assert not (tmp_path / "b").exists()
    run(tmp_path / "b")


def test_a_disk_without_room_is_an_error_of_the_command(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=200k none '{tmp_path}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here (needs root)")
    command = f"{sys.executable} -c 'from runtime.cli import main; main()' extract"
    script = f"{mount} && {command} --base {BASE} --tuned {TUNED} --out {tmp_path}/b"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "No space left on device; make room or choose another --out" in done.stderr


def sized(folder: Path, shape: tuple[int, int], rank: int) -> tuple[Path, Path]:
    """Make a base and a tuned model of four matrices, and tiny everything else."""
    names = [f"model.language_model.layers.{layer}.mlp.up_proj.weight" for layer in range(4)]
    generator = torch.Generator().manual_seed(1)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator)

    for part in ("base", "tuned"):
        (folder / part).mkdir(parents=True)
        shutil.copy(TUNED / "config.json", folder / part)
        shutil.copy(TUNED / "tokenizer.json", folder / part)
    for name in ("joint_head.safetensors", "joint_head_config.json"):
        shutil.copy(TUNED / name, folder / "tuned")
    for index, name in enumerate(names):
        weight = normal(*shape).mul_(0.02).bfloat16()
        file = f"model-{index + 1}.safetensors"
        save_file({name: weight}, folder / "base" / file)
        change = normal(shape[0], rank) @ normal(rank, shape[1]) * (0.005 / rank**0.5)
        save_file({name: (weight.float() + change).bfloat16()}, folder / "tuned" / file)
    return folder / "base", folder / "tuned"


def test_large_matrices_are_sketched_as_well_as_decomposed(tmp_path: Path) -> None:
    base, tuned = sized(tmp_path, (900, 700), rank=40)
    bundle = run(tmp_path / "b", base, tuned, dtype="float32")
    assert bundle.adapter_rank == 40
    assert not bundle.manifest.answer  # there are four matrices, and no model around them
    report = (bundle.path / "report.md").read_text()
    assert "No answer to the fixed question is recorded: " in report
    assert bundle.manifest.extraction is not None
    for name, error in bundle.manifest.extraction.matrices.items():
        file = f"model-{int(name.split('.')[3]) + 1}.safetensors"
        change = load_file(tuned / file)[name].float() - load_file(base / file)[name].float()
        values = torch.linalg.svdvals(change)
        best = (values[40:].square().sum() / values.square().sum()).sqrt()
        assert error.change <= 1.01 * float(best)


@pytest.mark.long
def test_memory_is_bound_by_the_largest_matrix(tmp_path: Path) -> None:
    base, tuned = sized(tmp_path, (17408, 5120), rank=256)
    script = (
        "import re; from pathlib import Path;"
        "from engine.extract.job import Options, extract;"
        f"extract(Path({str(base)!r}), Path({str(tuned)!r}), Path({str(tmp_path / 'b')!r}),"
        " Options(), lambda *_: None);"
        # not getrusage: a process that is started inherits the most that its parent had
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 3 * 4 * 17408 * 5120 + 2**30
    assert load_bundle(tmp_path / "b").adapter_rank == 256
