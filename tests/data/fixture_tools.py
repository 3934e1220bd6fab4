# SPDX-License-Identifier: MIT
"""What the scripts of this folder share: pinned versions and random weights."""

import importlib.metadata
import math
import sys

import torch

PINNED = {"torch": "2.4.1", "transformers": "4.57.6", "safetensors": "0.6.2", "numpy": "2.2.6"}


def check_versions() -> None:
    """@throws SystemExit when a version differs from the pinned one"""
    if sys.version_info[:2] != (3, 11):
        raise SystemExit(f"this is Python {sys.version.split()[0]}; the fixtures need 3.11")
    for package, pinned in PINNED.items():
        found = importlib.metadata.version(package)
        if found.split("+")[0] != pinned:
            raise SystemExit(f"{package} {found} is installed; the fixtures need {pinned}")


def fill(model: torch.nn.Module, seed: int, *, norm: float = 0.1, embed: float = 1.0,
         gain: float = 1.0) -> None:  # fmt: skip
    """Random weights that keep activations near 1; transformers itself starts biases at zero.

    norm: spread of norm weights around 1. embed: of the embedding. gain: of linear layers, in
    units of 1 / sqrt(inputs).
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32)

    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if name.endswith("bias"):
                parameter.copy_(0.5 * normal(parameter.shape))
            elif "norm" in name:
                parameter.copy_(1 + norm * normal(parameter.shape))
            elif "embed" in name and "embed_out" not in name:
                parameter.copy_(embed * normal(parameter.shape))
            else:
                parameter.copy_(gain * normal(parameter.shape) / math.sqrt(parameter.shape[1]))
