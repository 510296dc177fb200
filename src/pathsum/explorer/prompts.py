"""What is typed as a prompt, as tokens."""

from pathsum.errors import TextError
from pathsum.weights.model import Model
from pathsum.weights.tokens import token_ids


def prompt_tokens(model: Model, prompt: str) -> list[int]:
    """Of a prompt as it is run, BOS included; of a model without tokenizer, ids with spaces or commas between.

    Raises `TextError`.
    """
    if model.tokenizer is not None:
        return token_ids(model, prompt.replace("\r\n", "\n")).tolist()
    parts = prompt.replace(",", " ").split()
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise TextError(f"{model.takes_ids_alone}: give token ids, such as 3 1 4")
    return token_ids(model, [int(part) for part in parts]).tolist()
