#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads every checkpoint with golden logits back and checks that they follow from it.

    venv/bin/python tests/data/check_fixtures.py

Prints a line for each checkpoint and exits 1 when anything is wrong.
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from fixture_tools import check_versions
from golden_logits import STEPS, forward, golden, load, prompts
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
SIZE_LIMIT = 4_000_000
# Another CPU may sum in another order.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4, torch.int64: 0}
# Config keys whose value must show in the logits, each with one that is wrong for the checkpoint.
# They take effect without another shape of any weight.
EVERY = {"rope_theta": 50.0, "rms_norm_eps": 1e-6}
# The names by which transformers itself looks up rotary_emb_base and rotary_pct.
NEOX = {"rope_theta": 50.0, "partial_rotary_factor": 1.0, "layer_norm_eps": 1e-6,
        "hidden_act": "gelu_pytorch_tanh"}  # fmt: skip
SEEN = {
    "tiny-llama": EVERY,
    "tiny-llama-bias": EVERY,
    "tiny-llama-rope3": EVERY | {"rope_scaling": None},
    "tiny-qwen2": EVERY,
    "tiny-qwen2-yarn": EVERY | {"rope_scaling": None},
    "tiny-qwen3-tied": EVERY,
    "tiny-mistral": EVERY | {"sliding_window": None},
    "tiny-phi3": EVERY | {"partial_rotary_factor": 1.0},
    "tiny-gpt-neox": NEOX | {"use_parallel_residual": False},
    "tiny-gpt-neox-serial": NEOX | {"use_parallel_residual": True},
}


def distance(a: dict, b: dict) -> tuple[float, list[str]]:
    """Largest float64 difference, and the tensors that differ by more than is allowed."""
    if a.keys() != b.keys():
        return float("inf"), sorted(a.keys() ^ b.keys())
    worst, wrong = 0.0, []
    for name in sorted(a):
        if a[name].shape != b[name].shape or a[name].dtype != b[name].dtype:
            wrong.append(name)
            continue
        far = (a[name].double() - b[name].double()).abs().max().item()
        if a[name].dtype is torch.float64:
            worst = max(worst, far)
        # not >: a NaN is wrong
        if not far <= TOLERANCE[a[name].dtype]:
            wrong.append(name)
    return worst, wrong


def uncached(folder: Path, stored: dict) -> list[str]:
    """Decode steps must equal one forward pass over the prompt and what was generated."""
    model, wrong = load(folder, torch.float64), []
    for suffix, prompt in prompts(model.config.vocab_size).items():
        if stored[f"tokens{suffix}"].tolist() != prompt:
            wrong.append(f"tokens{suffix}")
        generated = stored[f"generated{suffix}"].tolist()
        whole, _ = forward(model, prompt + generated)
        steps = whole[-STEPS:]
        if (steps - stored[f"step_logits_f64{suffix}"]).abs().max() > 1e-11:
            wrong.append(f"step_logits_f64{suffix} without a cache")
        if whole[-STEPS - 1 : -1].argmax(dim=1).tolist() != generated:
            wrong.append(f"generated{suffix}")
    return wrong


def unseen(folder: Path, stored: dict) -> list[str]:
    """Keys of the config that do not move the logits by far more than the tolerance."""
    wrong = []
    for key, value in SEEN[folder.name].items():
        logits, _ = forward(load(folder, torch.float64, **{key: value}), stored["tokens"].tolist())
        if (logits - stored["logits_f64"]).abs().max() < 1e-4:
            wrong.append(f"config key {key} is not seen")
    return wrong


def to_llama(folder: Path, out: Path) -> None:
    """An internlm2 checkpoint as llama, by the formula of a single row, not by blocks."""
    old, tensors = json.loads((folder / "config.json").read_text()), {}
    heads, kv_heads = old["num_attention_heads"], old["num_key_value_heads"]
    dim, per_group = old["hidden_size"] // heads, heads // kv_heads

    def rows(group: int, slot: int) -> list[int]:
        return [(group * (per_group + 2) + slot) * dim + d for d in range(dim)]

    for name, tensor in load_file(folder / "model.safetensors").items():
        parts = name.split(".")
        if parts[-2] == "wqkv":
            query = [r for h in range(heads) for r in rows(h // per_group, h % per_group)]
            key = [r for j in range(kv_heads) for r in rows(j, per_group)]
            value = [r for j in range(kv_heads) for r in rows(j, per_group + 1)]
            for letter, index in (("q", query), ("k", key), ("v", value)):
                tensors[f"model.layers.{parts[2]}.self_attn.{letter}_proj.weight"] = tensor[index]
            continue
        module = {"wo": "self_attn.o_proj", "w1": "mlp.gate_proj", "w2": "mlp.down_proj",
                  "w3": "mlp.up_proj", "attention_norm": "input_layernorm",
                  "ffn_norm": "post_attention_layernorm"}.get(parts[-2])  # fmt: skip
        top = {"tok_embeddings": "model.embed_tokens", "output": "lm_head", "norm": "model.norm"}
        prefix = f"model.layers.{parts[2]}.{module}" if module else top[parts[-2]]
        tensors[f"{prefix}.weight"] = tensor
    out.mkdir()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = old | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (out / "config.json").write_text(json.dumps(config))


def check_internlm2(work: Path) -> list[str]:
    folder, llama = HERE / "tiny-internlm2", {}
    to_llama(folder, work / "llama")
    for file in (HERE / "tiny-llama").glob("model*.safetensors"):
        llama |= load_file(file)
    back = load_file(work / "llama" / "model.safetensors")
    wrong = sorted(llama.keys() ^ back.keys())
    wrong += [name for name in back if name in llama and not torch.equal(back[name], llama[name])]
    worst, differ = distance(golden(work / "llama"), load_file(folder / "golden.safetensors"))
    report("tiny-internlm2", worst, wrong + differ)
    return wrong + differ


def report(name: str, worst: float, wrong: list[str]) -> None:
    verdict = "; ".join(wrong) if wrong else "ok"
    print(f"{name:22} largest float64 difference {worst:.1e}  {verdict}")


def main() -> None:
    check_versions()
    torch.set_num_threads(1)
    bad = 0
    for name in SEEN:
        folder = HERE / name
        stored = load_file(folder / "golden.safetensors")
        worst, wrong = distance(golden(folder), stored)
        wrong += uncached(folder, stored) + unseen(folder, stored)
        report(name, worst, wrong)
        bad += len(wrong)
    work = Path(tempfile.mkdtemp())
    try:
        bad += len(check_internlm2(work))
    finally:
        shutil.rmtree(work)
    files = [file for file in HERE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    total = sum(file.stat().st_size for file in files)
    print(f"{total} bytes in {len(files)} files; at most {SIZE_LIMIT}")
    raise SystemExit(1 if bad or total > SIZE_LIMIT else 0)


if __name__ == "__main__":
    main()
