#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads checkpoints of `tpsim synth` with transformers: every tensor is found, logits are finite.

Pinned: Python 3.11, torch==2.4.1, transformers==4.57.6, safetensors==0.6.2, numpy==2.2.6
    venv/bin/python tests/data/check_synth.py build/tpsim

Small checkpoints of each architecture are written below a temporary directory, once as one file
and once as several. transformers has no internlm2: its names and shapes are compared with those of
tiny-internlm2.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from fixture_tools import check_versions
from safetensors import safe_open
from transformers import AutoModelForCausalLM

SIZES = "--layers 3 --hidden 48 --heads 6 --kv-heads 2 --intermediate 36 --vocab 131".split()
NO_KV = [word for word in SIZES if word not in ("--kv-heads", "2")]
# One config of each architecture, and sizes; a built-in name or a fixture's folder.
CASES = {
    "llama-3-8b": SIZES,
    "llama-2-7b": SIZES,
    "tiny-llama-bias": [],
    "tiny-llama-rope3": ["--layers", "2"],
    "qwen2.5-7b": SIZES,
    "tiny-qwen2": ["--layers", "5"],
    "qwen3-0.6b": [*SIZES, "--head-dim", "12"],
    "qwen3-8b": [*SIZES, "--head-dim", "12"],
    "tiny-qwen3-bias": [],
    "mistral-7b": [*SIZES, "--head-dim", "10"],
    "phi-3-mini": SIZES,
    "tiny-phi3": ["--heads", "12", "--kv-heads", "4", "--hidden", "96"],
    "pythia-6.9b": NO_KV,
    "tiny-gpt-neox-serial": ["--vocab", "64"],
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
HERE = Path(__file__).parent


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """What safetensors itself reads, with the metadata that transformers asks for."""
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}, path
            for name in file.keys():  # noqa: SIM118, it is no dict
                assert name not in found, name
                found[name] = file.get_tensor(name)
    return found


def synth(program: Path, model: str, options: list[str], out: Path) -> dict[str, torch.Tensor]:
    source = str(HERE / model) if (HERE / model).is_dir() else model
    command = [program, "synth", source, "--out", out, "--json", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    found = tensors_of(out)
    assert report["written"]["tensors"] == len(found), model
    index = out / "model.safetensors.index.json"
    if index.exists():
        assert set(json.loads(index.read_text())["weight_map"]) == set(found), model
    return found


def check(program: Path, model: str, options: list[str], dtype: str, out: Path) -> str:
    more = ["--dtype", dtype, "--seed", "3"]
    tensors = synth(program, model, [*options, *more], out / "one")
    cut = synth(program, model, [*options, *more, "--max-shard-size", "20KB"], out / "many")
    assert len(list((out / "many").glob("*.safetensors"))) > 1
    assert tensors.keys() == cut.keys()
    assert all(torch.equal(tensors[name], cut[name]) for name in tensors), model
    assert all(t.dtype == DTYPES[dtype] for t in tensors.values()), model

    loaded, info = AutoModelForCausalLM.from_pretrained(
        out / "many", dtype="auto", output_loading_info=True, attn_implementation="eager"
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info[problem], (model, problem, info[problem])
    assert loaded.dtype == DTYPES[dtype], (model, loaded.dtype)
    state = loaded.state_dict()
    assert all(torch.equal(state[name], t) for name, t in tensors.items()), model
    with torch.no_grad():
        logits = loaded.eval()(torch.tensor([[3, 14, 15, 9, 26, 5, 35]])).logits.float()
    assert torch.isfinite(logits).all(), model
    assert 0.1 < logits.std() < 10, (model, logits.std())
    # Tokens matter: logits of one position differ from those of the next.
    assert (logits[0, 0] - logits[0, 1]).abs().max() > 0.1, model
    return f"{len(tensors)} tensors, logits {logits.std():.2f} (standard deviation)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="the tpsim to check")
    program = parser.parse_args().program.resolve()
    check_versions()
    for model, options in CASES.items():
        for dtype in DTYPES:
            with tempfile.TemporaryDirectory() as out:
                print(model, dtype, check(program, model, options, dtype, Path(out)), sep="  ")
    with tempfile.TemporaryDirectory() as out:
        ours = synth(program, "tiny-internlm2", [], Path(out) / "one")
        theirs = tensors_of(HERE / "tiny-internlm2")
        facts = [{n: (t.shape, t.dtype) for n, t in x.items()} for x in (ours, theirs)]
        assert facts[0] == facts[1]
        print("tiny-internlm2", f"{len(ours)} tensors, names and shapes as stored", sep="  ")


if __name__ == "__main__":
    main()
