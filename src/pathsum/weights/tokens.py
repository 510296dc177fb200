"""Text to token ids and back, with the BOS choice explicit."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from tokenizers import Tokenizer
from torch import Tensor

from pathsum.errors import TextError
from pathsum.weights.model import Model
from pathsum.weights.spec import Spec

PIECE = 1 << 20
"""Characters of a text that are tokenized at once, about."""
AROUND = 200
"""Characters on either side of a cut that are tokenized to try it."""

Text = str | Sequence[int] | Tensor


def token_ids(model: Model, text: Text, bos: bool | None = None) -> Int[Tensor, " pos"]:
    """Token ids of a text; given ids are only checked.

    `bos=None` puts the beginning-of-sequence token before a *string* where the model was trained with one; True and
    False say so explicitly. Raises `TextError` for a model without tokenizer, an empty text, ids out of range.
    """
    if isinstance(text, str):
        if model.tokenizer is None:
            raise TextError(f"{model.takes_ids_alone}: pass token ids instead of text, or tokenizer= to open()")
        try:
            ids = torch.cat([_encoded(model.tokenizer, piece) for piece in _pieces(model.tokenizer, text)])
        except (TypeError, UnicodeError) as error:
            raise TextError(f"the text is no valid Unicode: {error}") from error
    else:
        ids = _given_ids(text)
        bos = False if bos is None else bos
    if starts_with_bos(model.spec, bos):
        if model.spec.bos is None:
            raise TextError(f"{model.name} has no beginning-of-sequence token; use bos=False")
        ids = torch.cat([torch.tensor([model.spec.bos]), ids])
    if not len(ids):
        raise TextError("the text is empty; give at least one token")
    if int(ids.min()) < 0 or int(ids.max()) >= model.spec.d_vocab:
        raise TextError(
            f"token ids must be from 0 to {model.spec.d_vocab - 1}, got {int(ids.min())} to {int(ids.max())}"
        )
    return ids


def _encoded(tokenizer: Tokenizer, text: str) -> Int[Tensor, " pos"]:
    return torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids, dtype=torch.long)


def _pieces(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """The text in pieces with the same tokens as the whole: its tokenizer takes some 200 bytes a character.

    Cut before the end of a line, and only where the tokenizer itself says that a cut changes nothing: where the text
    around it has the same tokens in two parts as in one.
    """
    start, end = 0, PIECE
    while (cut := text.find("\n", end)) >= 0:
        parts = text[max(start, cut - AROUND) : cut], text[cut : cut + AROUND]
        if torch.equal(torch.cat([_encoded(tokenizer, part) for part in parts]), _encoded(tokenizer, "".join(parts))):
            yield text[start:cut]
            start = cut
        end = start + PIECE if start == cut else cut + AROUND
    yield text[start:]


def starts_with_bos(spec: Spec, bos: bool | None) -> bool:
    """The caller's choice, or the model's own where there is none. Raises `TextError` for what is no choice."""
    if bos not in (None, True, False):
        raise TextError(f"bos is {bos!r}, must be True, False or None")
    return spec.first_token is not None if bos is None else bool(bos)


def token_strings(model: Model, ids: Sequence[int] | Tensor) -> list[str]:
    """Each token as text of its own; bytes that are no whole character are shown as the tokenizer spells them."""
    plain = [int(i) for i in ids]
    if model.tokenizer is None:
        return [str(i) for i in plain]
    return [_string(model.tokenizer, i) for i in plain]


def token_id(model: Model, token: str | int) -> int:
    """The id of one token: of its text, of its name where tables show one (`<0x0A>`), or the id itself.

    Raises `TextError` for what is no single token of the model.
    """
    if isinstance(token, str) and model.tokenizer is not None:
        ids = model.tokenizer.encode(token, add_special_tokens=False).ids
        named = model.tokenizer.token_to_id(token.removeprefix("<").removesuffix(">"))
        if len(ids) != 1 and named is None:
            parts = ", ".join(map(repr, token_strings(model, ids))) or "none"
            raise TextError(
                f"{token!r} is {len(ids)} tokens of {model.name} ({parts}); give one, with its leading space"
            )
        return ids[0] if len(ids) == 1 else int(named or 0)
    if isinstance(token, str) and not token.isdecimal():
        raise TextError(f"{model.takes_ids_alone}: give the id of a token instead of {token!r}")
    return int(token_ids(model, [int(token)])[0])


def passage(model: Model, ids: Sequence[int] | Tensor) -> str:
    """Tokens as one text; without a tokenizer, their ids with spaces between."""
    plain = [int(i) for i in ids]
    if model.tokenizer is None:
        return " ".join(map(str, plain))
    return model.tokenizer.decode(plain, skip_special_tokens=False)


def _string(tokenizer: Tokenizer, token: int) -> str:
    text = tokenizer.decode([token], skip_special_tokens=False)
    if text and "\ufffd" not in text:
        return text
    return f"<{tokenizer.id_to_token(token) or token}>"


def _given_ids(ids: Sequence[int] | Tensor) -> Tensor:
    try:
        tensor = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TextError(f"a text or one list of token ids is wanted, not {type(ids).__name__} ({error})") from error
    if tensor.dim() != 1 or (tensor.numel() and (tensor.is_floating_point() or tensor.dtype == torch.bool)):
        raise TextError(
            f"token ids must be one list of whole numbers, got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    return tensor.long()
