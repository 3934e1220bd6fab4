# SPDX-License-Identifier: MIT
"""Golden logits of a checkpoint: prefill, then decode steps through the KV cache.

Computed twice: by transformers as it is, in float32, and with every float32 that it uses inside
(norms, softmax, rotary angles) widened to float64.
"""

from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

STEPS = 4
# Greedy tokens are golden only when no rounding can change them.
SMALLEST_MARGIN = 0.02
# And they tell something only when the model does not repeat one token.
LEAST_DISTINCT = {"": 3, "_b": 2}


def prompts(vocab: int) -> dict[str, list[int]]:
    """Two prompts of different lengths. Both touch the first and the last row of the embedding."""
    return {
        "": [3, 0, 14, vocab - 1, 9, 26, 5, 35, 50],
        "_b": [vocab - 1, 7, 0, 60, 7],
    }


class Widen(TorchFunctionMode):
    """Turns each request for float32 into one for float64, and refuses a float32 result.

    transformers asks for float32 by name in norms, softmax and rotary embeddings, so a model
    converted by `.double()` alone would still round there.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        kwargs = {key: wide(value) for key, value in (kwargs or {}).items()}
        out = func(*map(wide, args), **kwargs)
        if isinstance(out, torch.Tensor) and out.dtype is torch.float32:
            raise RuntimeError(f"{func} gave float32 inside a float64 computation")
        return out


def load(folder: Path, dtype: torch.dtype, **changes) -> torch.nn.Module:
    """The checkpoint in float32, or widened to float64. `changes` override keys of its config."""
    config = AutoConfig.from_pretrained(folder)
    for key, value in changes.items():
        if not hasattr(config, key):
            raise KeyError(key)
        setattr(config, key, value)
    narrow = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    if dtype is torch.float32:
        return narrow
    state = {name: tensor.double() for name, tensor in narrow.state_dict().items()}
    with Widen():
        wide = AutoModelForCausalLM.from_config(
            narrow.config, dtype=torch.float64, attn_implementation="eager"
        ).eval()
    wide.load_state_dict(state)
    return wide


def forward(model: torch.nn.Module, tokens: list[int], cache=None):
    """Logits [len(tokens), vocab] and the cache, in the dtype of the model's weights."""
    ids = torch.tensor([tokens])
    with torch.no_grad():
        if model.dtype is torch.float64:
            with Widen():
                out = model(ids, past_key_values=cache, use_cache=True)
        else:
            out = model(ids, past_key_values=cache, use_cache=True)
    return out.logits[0].clone(), out.past_key_values


def stages(model: torch.nn.Module, tokens: list[int]) -> dict[str, torch.Tensor]:
    """[tokens, hidden] after the embedding, each decoder layer and the final norm."""
    base = model.base_model
    modules = {"hidden.0": model.get_input_embeddings()}
    modules |= {f"hidden.{i + 1}": layer for i, layer in enumerate(base.layers)}
    modules["final_norm"] = base.norm if hasattr(base, "norm") else base.final_layer_norm
    seen = {}

    def record(name: str):
        def hook(_module, _inputs, output):
            out = output[0] if isinstance(output, tuple) else output
            seen[name] = out.detach()[0].clone().contiguous()

        return hook

    hooks = [module.register_forward_hook(record(name)) for name, module in modules.items()]
    forward(model, tokens)
    for hook in hooks:
        hook.remove()
    return seen


def greedy(logits: torch.Tensor) -> int:
    """The largest logit's index. @throws RuntimeError when the second is too close to it"""
    best = logits.topk(2)
    margin = (best.values[0] - best.values[1]).item()
    if margin < SMALLEST_MARGIN:
        raise RuntimeError(f"two tokens are only {margin} apart: take another seed")
    return int(best.indices[0])


def decode(model: torch.nn.Module, prompt: list[int]) -> dict[str, torch.Tensor]:
    """`step_logits[i]` follows when `generated[i]`, chosen from the logits before, is fed."""
    logits, cache = forward(model, prompt)
    generated, steps, last = [], [], logits[-1]
    for _ in range(STEPS):
        generated.append(greedy(last))
        row, cache = forward(model, generated[-1:], cache)
        last = row[0]
        steps.append(last)
    return {"logits": logits, "generated": torch.tensor(generated),
            "step_logits": torch.stack(steps)}  # fmt: skip


def golden(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of golden.safetensors for a checkpoint that transformers can load."""
    narrow, wide = load(folder, torch.float32), load(folder, torch.float64)
    out = {}
    for suffix, prompt in prompts(narrow.config.vocab_size).items():
        few, many = decode(narrow, prompt), decode(wide, prompt)
        if not torch.equal(few["generated"], many["generated"]):
            raise RuntimeError(f"{folder.name}: float32 and float64 generate different tokens")
        if len(many["generated"].unique()) < LEAST_DISTINCT[suffix]:
            raise RuntimeError(f"{folder.name}: repeats one token: take another seed")
        out[f"tokens{suffix}"] = torch.tensor(prompt)
        out[f"generated{suffix}"] = many["generated"]
        for name in ("logits", "step_logits"):
            out[f"{name}{suffix}"] = few[name]
            out[f"{name}_f64{suffix}"] = many[name]
    return out | stages(wide, out["tokens"].tolist())
