"""Data of the interactive views, JSON-ready: what `report/web` draws, in the page and in the explorer alike."""
