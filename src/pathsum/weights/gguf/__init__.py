"""GGUF files: memory-mapped, dequantised tensor by tensor, in the canonical names."""

from pathsum.weights.gguf.read import Gguf, open_gguf

__all__ = ["Gguf", "open_gguf"]
