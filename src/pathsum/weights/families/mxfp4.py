"""MXFP4 undone: blocks of 32 four-bit floats (E2M1) with one power of two each (E8M0).

OCP Microscaling Formats specification 1.0, sections 5.3.3 and 5.4.1.
"""

import torch
from jaxtyping import BFloat16, UInt8
from torch import Tensor

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BIAS = 127


def decoded(
    blocks: UInt8[Tensor, "*rows blocks 16"], scales: UInt8[Tensor, "*rows blocks"]
) -> BFloat16[Tensor, "*rows width"]:
    """`2^(scale − 127)` times each block's values, exact in bfloat16; the lower half of a byte comes first.

    A scale of 255 stands for no number, and its block is NaN.
    """
    values = torch.tensor([*MAGNITUDES, *(-x for x in MAGNITUDES)], dtype=torch.bfloat16, device=blocks.device)
    nibbles = torch.stack([blocks & 0x0F, blocks >> 4], dim=-1).flatten(-2)
    power = torch.exp2(scales.float() - BIAS).masked_fill(scales == 255, torch.nan).bfloat16()
    return (values[nibbles.int()] * power[..., None]).flatten(-2)
