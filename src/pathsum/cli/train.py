"""`pathsum train`: a recipe and a text in, a folder with a trained model out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathsum.training.cost import Cost


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="zero-layer, one-layer, two-layer, two-layer-small, paper-two-layer, two-layer-mlp-small, "
            "one-layer-smeared-small or one-layer-convolution-small."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the trained model and its checkpoints; needed but for --dry-run.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="File, folder, or the word python (this Python's standard library, the default); may be given more "
            "than once. PATH@28MB takes the first 28 MB."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of training.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers, any number from 0.")] = None,
    heads: Annotated[int | None, typer.Option(help="Heads a layer.")] = None,
    d_model: Annotated[int | None, typer.Option(help="Width of the residual stream.")] = None,
    d_head: Annotated[int | None, typer.Option(help="Width of a head.")] = None,
    d_mlp: Annotated[int | None, typer.Option(help="Hidden units of each layer's MLP; 0: no MLPs.")] = None,
    smeared_keys: Annotated[
        bool | None,
        typer.Option("--smeared-keys/--no-smeared-keys", help="Mix each key with the one before it, by a gate a head."),
    ] = None,
    smear_start: Annotated[
        float | None, typer.Option(help="The gates' logit at the start; −1.5: a fifth is the key's own.")
    ] = None,
    convolution: Annotated[
        int | None, typer.Option(help="Mix queries, keys and values of this many positions; 0: not.")
    ] = None,
    vocab: Annotated[int | None, typer.Option(help="Tokens in the vocabulary, trained on the text.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences a step, over all devices.")] = None,
    warm_up: Annotated[int | None, typer.Option(help="Steps in which rates of learning rise.")] = None,
    tiled: Annotated[float | None, typer.Option(help="Share of sequences that repeat a short stretch.")] = None,
    norm: Annotated[str | None, typer.Option(help="none, layer or rms.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the start and of the order of the data.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would take, and train nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT that was interrupted.")] = False,
    devices: Annotated[int, typer.Option(help="Processes, one a device.")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="bf16-mixed or 32-true.")] = "bf16-mixed",
    threads: Annotated[int | None, typer.Option(help="Threads a process; all cores by default.")] = None,
    accumulate: Annotated[
        int, typer.Option(min=1, help="Parts that a process takes its share of a batch in, one after the other.")
    ] = 1,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json, or a folder with one or GPT-2's two files; default: trained on the text."),
    ] = None,
    weights_dtype: Annotated[str, typer.Option(help="float32 or bfloat16: how models are written.")] = "float32",
) -> None:
    """Train a small model, attention-only or with MLPs, on a text."""
    from pathsum.training.machine import let_waiting_threads_sleep

    let_waiting_threads_sleep()
    import torch

    from pathsum.training.cost import cost
    from pathsum.training.recipe import recipe as named
    from pathsum.training.run_folder import Settings
    from pathsum.training.train import train as train_recipe

    settings = Settings(
        devices=devices,
        accelerator=accelerator,
        precision=precision,
        threads=max(1, torch.get_num_threads() // max(1, devices)) if threads is None else threads,
        weights_dtype=weights_dtype,
        accumulate=accumulate,
    )
    chosen = named(
        recipe, steps=steps, layers=layers, heads=heads, d_model=d_model, d_head=d_head, d_mlp=d_mlp,
        smeared_keys=smeared_keys, smear_start=smear_start, convolution=convolution,
        vocab=vocab, context=context, batch=batch, warm_up=warm_up, tiled=tiled, norm=norm, seed=seed,
    )  # fmt: skip
    if dry_run:
        print(taken(cost(chosen)))
        return
    if out is None:
        raise typer.BadParameter("name a folder for the trained model", param_hint="--out")
    try:
        facts = train_recipe(chosen, out, text or ["python"], settings, resume, vocabulary=vocabulary)
    except KeyboardInterrupt:
        print("stopped; the same command with --resume goes on from the last saved state", file=sys.stderr)
        raise typer.Exit(130) from None
    print(summary(facts, out))


def taken(found: "Cost") -> str:
    """What a run takes, in words; the rate is one to divide by, not a promise."""
    at_once = found.hours(1, 1e14, 1)
    return (
        f"{found.parameters / 1e6:.1f} M parameters, {found.tokens / 1e6:,.1f} M tokens, {found.operations:.2e} "
        f"operations\n{at_once:.2g} hours at 10¹⁴ operations a second"
    )


def summary(facts: dict, out: Path) -> str:
    """What a finished run says on the terminal."""
    lines = [f"{out}: {facts['recipe']['name']}, {facts['tokens'] / 1e6:.1f} M tokens in {facts['seconds']:.0f} s"]
    lines += [f"validation loss {facts['validation_loss']:.3f} nats a token"]
    found = facts["induction"]
    if found:
        lines += [f"induction appeared at step {found['step']} ({found['tokens'] / 1e6:.1f} M tokens)"]
    elif _can_have_induction(facts["recipe"]):
        lines += ["induction did not appear; train longer (--steps), or on more code"]
    if facts["head"]:
        lines += [f"best head {facts['head']}: prefix matching {facts['prefix_matching']:.2f}"]
    return "\n".join(lines)


def _can_have_induction(recipe: dict) -> bool:
    """Two layers can; one that mixes positions too."""
    mixes = recipe.get("smeared_keys", False) or recipe.get("convolution", 0)
    return recipe["layers"] > 1 or (recipe["layers"] == 1 and bool(mixes))
