#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much longer `tpsim run` takes at tp 4 than at tp 1, on a model of 100 MB.

    python3 tests/bench/run_model.py build/tpsim [--rounds N]

Writes a llama of 25 million f32 weights to a temporary folder, runs it at both tp in turn, and
prints the best time of each and their ratio. Needs Python 3.9 alone.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB = 512, 1408, 16, 4, 32, 6, 8192


def tensors():
    """Name and shape of each tensor."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "mlp.gate_proj.weight", (INTERMEDIATE, HIDDEN)
        yield at + "mlp.up_proj.weight", (INTERMEDIATE, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INTERMEDIATE)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def floats(count, rng, positive):
    """f32 numbers of size 2^-7 to 2^-5; 2^-1 to 2 when positive."""
    top = bytes((0x3F if positive else 0x3C if b & 1 else 0xBC) for b in range(256))
    data = bytearray(4 * count)
    for byte in range(3):
        data[byte::4] = rng.randbytes(count)
    data[3::4] = rng.randbytes(count).translate(top)
    return data


def write_model(folder):
    config = {
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32",
    }
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out)
    header, end = {}, 0
    for name, shape in tensors():
        begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    rng = random.Random(1)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors():
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            out.write(floats(count, rng, len(shape) == 1))
    return end


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"weights {write_model(folder) / 1e6:.1f} MB")
        best = {1: float("inf"), 4: float("inf")}
        for _ in range(given.rounds):
            for tp in best:
                start = time.monotonic()
                ran = subprocess.run(
                    [given.program, "run", folder, "--tp", str(tp), "--tokens",
                     "1,17,4096,8191,5,300,7,2", "--generate", "8", "-q"],
                    capture_output=True, text=True)
                best[tp] = min(best[tp], time.monotonic() - start)
                if ran.returncode != 0:
                    sys.exit(ran.stdout + ran.stderr)
    print(f"tp 1 {best[1]:.2f} s, tp 4 {best[4]:.2f} s, ratio {best[4] / best[1]:.2f}")


if __name__ == "__main__":
    main()
