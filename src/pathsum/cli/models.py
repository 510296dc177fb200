"""`pathsum models`: what ships with the package."""

import json
from typing import Annotated

import typer

COLUMNS = ("name", "layers", "heads", "d_model", "d_head", "d_vocab", "n_ctx", "MB", "loss", "tokens_M", "induction")
SHOWN = tuple(column for column in COLUMNS if column != "tokens_M")


def models(as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False) -> None:
    """List the built-in models with their facts."""
    from rich.console import Console
    from rich.table import Table

    rows = _rows()
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in SHOWN:
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*("–" if row[column] is None else str(row[column]) for column in SHOWN))
    Console().print(table)
    print("\nloss: nats a token on held-out text · induction: prefix matching of the best head")


def _rows() -> list[dict[str, str | int | float | None]]:
    from pathsum.weights.checkpoint import builtin_names, open_model

    rows = []
    for name in builtin_names():
        model = open_model(name)
        spec, facts = model.spec, model.training
        size = sum(file.stat().st_size for file in model.files)
        rows.append(
            {
                "name": name,
                "layers": spec.n_layers,
                "heads": spec.n_heads if spec.n_layers else 0,
                **{column: getattr(spec, column) for column in ("d_model", "d_head", "d_vocab", "n_ctx")},
                "MB": round(size / 1e6, 1),
                "loss": _rounded(facts.get("validation_loss"), 2),
                "tokens_M": _rounded(facts.get("tokens", 0) / 1e6, 1),
                "induction": _rounded(facts.get("prefix_matching"), 2),
            }
        )
    return rows


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
