"""What was asked of a prompt, in one or two lines of the terminal."""

from typing import Any

from pathsum.report.numbers import fixed
from pathsum.report.tokens import visible


def question(asked: dict[str, Any]) -> str:
    """The target and its value; where paths do not sum to it, what they sum to and what is left out."""
    token, before = quoted(asked["token_string"]), quoted(asked["token_strings"][asked["position"]])
    kind = "log-probability" if asked["target"] == "log-probability" else "logit"
    less = "" if asked["versus"] is None else f" less that of {quoted(asked['versus_string'])}"
    line = f"{kind} of {token}{less} after {before}: {fixed(asked['value'], 3)}"
    if abs(asked["left_out"]) > 1e-4 or asked["start"]:
        line += (
            f"\n= {fixed(asked['start'], 3)} at logits of zero + {fixed(asked['linear'], 3)} of all paths "
            f"+ {fixed(asked['left_out'], 3)} that is not linear"
        )
    return line


def quoted(token: str) -> str:
    """A token in a sentence."""
    return f'"{visible(token, 16)}"'
