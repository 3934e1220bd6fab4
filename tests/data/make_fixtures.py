#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tiny Qwen3 checkpoints of this folder and their golden activations.

Pinned: Python 3.11, torch==2.4.1, transformers==4.57.6, safetensors==0.6.2, numpy==2.2.6
    python3 -m venv venv
    venv/bin/pip install torch==2.4.1 transformers==4.57.6 safetensors==0.6.2 numpy==2.2.6
    venv/bin/python tests/data/make_fixtures.py            # writes next to this file
    venv/bin/python tests/data/make_fixtures.py --out DIR  # writes below DIR instead

The checkpoints are the same on every machine. The last bits of golden.safetensors may follow the
CPU (the order of summation in torch's products does); the tests allow for that by a bound.
"""

import argparse
import shutil
from pathlib import Path

import torch
from fixture_tools import check_versions, fill
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

# heads * head_dim differs from hidden, and kv heads from heads, so that no size can stand in for
# another. Legal tp: 1, 2, 4, 8 for both; above kv heads the kv heads are replicated.
MODELS = {
    "tiny-qwen3": dict(
        seed=1, dtype=torch.bfloat16, max_shard_size=10_000,
        config=dict(hidden_size=32, num_attention_heads=8, num_key_value_heads=2, head_dim=6,
                    intermediate_size=24, num_hidden_layers=2, vocab_size=64,
                    attention_bias=False)),
    "tiny-qwen3-bias": dict(
        seed=2, dtype=torch.float32, max_shard_size=30_000,
        config=dict(hidden_size=40, num_attention_heads=8, num_key_value_heads=4, head_dim=10,
                    intermediate_size=48, num_hidden_layers=2, vocab_size=48,
                    attention_bias=True)),
}  # fmt: skip
PROMPT = [3, 14, 15, 9, 26, 5, 35]


def golden(folder: Path) -> dict[str, torch.Tensor]:
    """Input and output [tokens, columns] of every linear layer, computed in float32."""
    model = Qwen3ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = torch.tensor([PROMPT])
    seen = {"input_ids": ids[0].clone()}

    def record(name: str):
        def hook(_module, inputs, output):
            # clone: two layers may read one tensor, which safetensors refuses to save twice
            seen[f"{name}.input"] = inputs[0].detach()[0].clone().contiguous()
            seen[f"{name}.output"] = output.detach()[0].clone().contiguous()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(record(name))
    with torch.no_grad():
        model(ids, use_cache=False)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    check_versions()
    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        config = Qwen3Config(
            max_position_embeddings=64, tie_word_embeddings=False, use_cache=False,
            bos_token_id=1, eos_token_id=2, **spec["config"])  # fmt: skip
        model = Qwen3ForCausalLM(config)
        fill(model, spec["seed"])
        model.to(spec["dtype"]).save_pretrained(folder, max_shard_size=spec["max_shard_size"])
        save_file(golden(folder), folder / "golden.safetensors")


if __name__ == "__main__":
    main()
