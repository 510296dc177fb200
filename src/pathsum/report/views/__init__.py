"""Data of the interactive views, JSON-ready: what `report/web` draws, in the page and in the explorer alike."""

from pathsum.report.views.attention import AttentionView, HeadAttention

__all__ = ["AttentionView", "HeadAttention"]
