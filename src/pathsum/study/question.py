"""What is asked of a prompt: which number of which prediction, and what the model itself says."""

from dataclasses import dataclass
from typing import Any

from pathsum.paths import target as targets
from pathsum.paths.readout import place
from pathsum.paths.target import Target
from pathsum.runs.run import Run
from pathsum.weights.tokens import token_id, token_strings


@dataclass(frozen=True)
class Question:
    """A target, and the tokens it is about."""

    run: Run
    target: Target
    token: int
    versus: int | None

    @classmethod
    def of(
        cls, run: Run, token: str | int | None, versus: str | int | None, log_probability: bool, at: int
    ) -> "Question":
        """The logit of `token` (default: the first choice), less that of `versus`, or its log-probability.

        Raises `TextError` for a token that is none, `NotApplicable` for a position that is not there.
        """
        at = place(run, at)
        chosen = int(run.logits[at].argmax()) if token is None else token_id(run.model, token)
        if versus is not None:
            other = token_id(run.model, versus)
            return cls(run, targets.logit_difference(run, chosen, other, at), chosen, other)
        make = targets.log_probability if log_probability else targets.logit
        return cls(run, make(run, chosen, at), chosen, None)

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        target, run = self.target, self.run
        names = [None if one is None else token_strings(run.model, [one])[0] for one in (self.token, self.versus)]
        return {
            "tokens": run.tokens.tolist(),
            "token_strings": run.token_strings,
            "bos": run.bos,
            "position": target.position,
            "target": target.kind,
            "token": self.token,
            "token_string": names[0],
            "versus": self.versus,
            "versus_string": names[1],
            "value": target.value,
            "start": target.start,
            "linear": target.linear,
            "left_out": target.left_out,
        }
