"""`hf:owner/name[@revision]`: the one place that uses the network, and only when such a name asks for it."""

import importlib
from pathlib import Path
from typing import Any

from pathsum.errors import CheckpointError

PREFIX = "hf:"
WANTED = ["*.json", "*.safetensors", "merges.txt", "vocab.txt"]
PICKLED = ["pytorch_model*.bin"]


def fetch(name: str) -> Path:
    """The folder of a model on the Hugging Face hub, downloaded unless it is in the local cache.

    Raises `CheckpointError` without the `[hub]` extra, for a name of another form, and for what the hub refuses.
    """
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise CheckpointError(f"{name!r} is no name on the hub; write hf:owner/name or hf:owner/name@revision")
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise CheckpointError(f"{name} needs the hub's client: pip install 'pathsum[hub]'") from error
    try:
        folder = Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=WANTED))
        if not any(folder.glob("*.safetensors")):
            hub.snapshot_download(repository, revision=revision or None, allow_patterns=PICKLED)
    except Exception as error:  # the client raises its own and its transport's
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{name} could not be fetched: {said}") from error
    return folder


def forget(name: str) -> None:
    """Removes the downloaded revision from the local cache; what other revisions share with it stays."""
    folder = fetch(name)
    hub: Any = importlib.import_module("huggingface_hub")
    hub.scan_cache_dir().delete_revisions(folder.name).execute()
