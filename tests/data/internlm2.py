# SPDX-License-Identifier: MIT
"""Rewrites a llama checkpoint into internlm2's names and its grouped order of q, k and v rows.

Source: internlm/internlm2-7b, config.json and modeling_internlm2.py.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

NAMES = {
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
}
# The other keys of a llama config, such as mlp_bias, are unknown to internlm2.
KEPT = ("bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range",
        "intermediate_size", "max_position_embeddings", "num_attention_heads",
        "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_scaling", "rope_theta",
        "tie_word_embeddings", "transformers_version", "use_cache", "vocab_size")  # fmt: skip


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_heads: int, head_dim: int):
    """[rows, hidden] each, to one tensor with rows kv * (q: g*d + k: d + v: d)."""
    parts = [part.reshape(kv_heads, -1, head_dim, part.shape[1]) for part in (q, k, v)]
    return torch.cat(parts, dim=1).reshape(-1, q.shape[1])


def rewrite(llama: Path, internlm2: Path) -> None:
    """Reads all files of `llama` and writes one model.safetensors and config.json."""
    tensors = {}
    for file in llama.glob("model*.safetensors"):
        tensors |= load_file(file)
    old = json.loads((llama / "config.json").read_text())
    heads, kv_heads = old["num_attention_heads"], old["num_key_value_heads"]
    if old["attention_bias"] or old["mlp_bias"] or old["head_dim"] * heads != old["hidden_size"]:
        raise ValueError(f"{llama}: internlm2 has no biases and head_dim is hidden_size / heads")
    out = {}
    for layer in range(old["num_hidden_layers"]):
        attention = f"model.layers.{layer}.self_attn."
        qkv = [tensors.pop(f"{attention}{part}_proj.weight") for part in "qkv"]
        out[f"model.layers.{layer}.attention.wqkv.weight"] = grouped(
            *qkv, kv_heads, old["head_dim"]
        )
    for name, tensor in tensors.items():
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        out[name] = tensor
    internlm2.mkdir(parents=True)
    save_file(out, internlm2 / "model.safetensors", metadata={"format": "pt"})
    config = {key: old[key] for key in KEPT}
    config |= {"architectures": ["InternLM2ForCausalLM"], "attn_implementation": "eager",
               "bias": False, "model_type": "internlm2", "pad_token_id": 2,
               "torch_dtype": old["dtype"]}  # fmt: skip
    text = json.dumps(config, indent=2, sort_keys=True)
    (internlm2 / "config.json").write_text(text + "\n")
