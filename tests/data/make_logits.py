#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tiny checkpoints of this folder that have golden logits.

    venv/bin/python tests/data/make_logits.py            # writes next to this file
    venv/bin/python tests/data/make_logits.py --out DIR  # writes below DIR instead

The virtual environment is that of make_fixtures.py; README.md tells what each checkpoint covers.
"""

import argparse
import shutil
from pathlib import Path

import torch
from fixture_tools import check_versions, fill
from golden_logits import golden
from internlm2 import rewrite
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM


def shape(hidden, intermediate, vocab, heads, kv_heads, head_dim=None, layers=2) -> dict:
    """head_dim None: the config has no such key, and engines divide hidden by heads."""
    sizes = dict(hidden_size=hidden, intermediate_size=intermediate, vocab_size=vocab,
                 num_attention_heads=heads, num_hidden_layers=layers)  # fmt: skip
    if kv_heads:
        sizes["num_key_value_heads"] = kv_heads
    if head_dim:
        sizes["head_dim"] = head_dim
    return sizes


# Each rotary base and each epsilon occurs once, and none is a default: a reader
# that does not look at the config cannot pass.
MODELS = {
    "tiny-llama": dict(
        type="llama", seed=11, max_shard_size=13_000,
        config=shape(48, 36, 131, heads=6, kv_heads=2, head_dim=8)
        | dict(rope_theta=1000.0, rms_norm_eps=2e-5)),
    "tiny-llama-rope3": dict(
        type="llama", seed=12,
        # wavelengths 6, 20, 63, 199: one kept, two blended, one divided by 8
        config=shape(40, 48, 101, heads=4, kv_heads=1, head_dim=8, layers=3)
        | dict(rope_theta=100.0, rms_norm_eps=3e-5, max_position_embeddings=512,
               rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=64))),
    "tiny-llama-bias": dict(
        type="llama", seed=23,
        config=shape(40, 48, 187, heads=6, kv_heads=3, head_dim=10)
        | dict(rope_theta=500.0, rms_norm_eps=4e-5, attention_bias=True, mlp_bias=True,
               tie_word_embeddings=True)),
    "tiny-qwen2": dict(
        type="qwen2", seed=14, dtype=torch.bfloat16,
        config=shape(32, 40, 149, heads=8, kv_heads=2)
        | dict(rope_theta=5000.0, rms_norm_eps=5e-5, tie_word_embeddings=True)),
    "tiny-qwen2-yarn": dict(
        type="qwen2", seed=15,
        config=shape(48, 40, 101, heads=4, kv_heads=2)
        | dict(rope_theta=2000.0, rms_norm_eps=6e-5, max_position_embeddings=128,
               rope_scaling=dict(rope_type="yarn", factor=4.0,
                                 original_max_position_embeddings=32))),
    "tiny-qwen3-tied": dict(
        type="qwen3", seed=26,
        config=shape(40, 36, 131, heads=12, kv_heads=2, head_dim=4)
        | dict(rope_theta=300.0, rms_norm_eps=7e-5, tie_word_embeddings=True)),
    "tiny-mistral": dict(
        type="mistral", seed=17,
        config=shape(40, 36, 187, heads=6, kv_heads=3, head_dim=8)
        | dict(rope_theta=700.0, rms_norm_eps=8e-5, sliding_window=4)),
    "tiny-phi3": dict(
        type="phi3", seed=18,
        config=shape(48, 36, 151, heads=6, kv_heads=2)
        | dict(rope_theta=600.0, rms_norm_eps=9e-5, partial_rotary_factor=0.75,
               original_max_position_embeddings=64)),
    "tiny-gpt-neox": dict(
        type="gpt_neox", seed=49,
        config=shape(48, 60, 131, heads=6, kv_heads=None)
        | dict(rotary_emb_base=800.0, layer_norm_eps=1e-4, rotary_pct=0.5,
               use_parallel_residual=True)),
    "tiny-gpt-neox-serial": dict(
        type="gpt_neox", seed=140,
        config=shape(48, 45, 187, heads=3, kv_heads=None)
        | dict(rotary_emb_base=900.0, layer_norm_eps=2e-4, rotary_pct=0.25,
               use_parallel_residual=False)),
}  # fmt: skip
COMMON = dict(max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1,
              eos_token_id=2, pad_token_id=None)  # fmt: skip


def write(folder: Path, spec: dict) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    config = AutoConfig.for_model(spec["type"], **(COMMON | spec["config"]))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    # A small embedding, and linear layers with a gain: a tied head then does not merely repeat
    # its input, and no part of a layer is too small to be missed.
    fill(model, spec["seed"], norm=0.3, embed=0.5, gain=1.5)
    model.to(spec.get("dtype", torch.float32))
    model.save_pretrained(folder, max_shard_size=spec.get("max_shard_size", "1GB"))
    save_file(golden(folder), folder / "golden.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", choices=sorted(MODELS), help="write one checkpoint")
    options = parser.parse_args()
    check_versions()
    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        if options.only in (None, name):
            write(options.out / name, spec)
    if options.only in (None, "tiny-llama"):
        # The same numbers under other names: transformers has no internlm2, so llama's are golden.
        llama, other = options.out / "tiny-llama", options.out / "tiny-internlm2"
        shutil.rmtree(other, ignore_errors=True)
        rewrite(llama, other)
        shutil.copyfile(llama / "golden.safetensors", other / "golden.safetensors")


if __name__ == "__main__":
    main()
