"""The commands for language models: tmln retention, merge."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tmln.cli.echo import echo, echo_block


class RetentionFormat(str, Enum):
    """Values of ``tmln retention --format``."""

    table = "table"
    json = "json"


Texts = Annotated[
    str,
    typer.Option(metavar="FILE", help='Texts: "general", a .jsonl with {"text": ...}, or a file of paragraphs.'),
]
Folder = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of the tuned model, or of a peft adapter.")]


def retention(
    model: Folder,
    before: Annotated[
        str | None, typer.Option(metavar="BASE", help="The model before; unless given, an adapter's base.")
    ] = None,
    texts: Texts = "general",
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Multiple choice: .jsonl of {"question", "choices", "answer"}.'),
    ] = None,
    format: Annotated[RetentionFormat, typer.Option(metavar="NAME", help="table or json.")] = RetentionFormat.table,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as an HTML page, too.")] = None,
) -> None:
    """Measure what a fine-tuned language model forgot, against its base.

    Nats per token, perplexity, bits per byte, divergence from the base and answers, each with a
    bootstrap interval of the change over texts.

    \b
    Example:
      tmln retention tuned/ --before base/ --texts general
    """
    from tmln.integrations.language_retention import find_texts, load_pair, measure_retention, read_questions
    from tmln.writing import writing

    found_texts = find_texts(texts)
    items = [] if questions is None else read_questions(questions)
    found = measure_retention(*load_pair(model, before), found_texts, items)
    if page is not None:
        with writing(page):
            page.write_text(found.page(), encoding="utf-8")
    if format is RetentionFormat.json:
        typer.echo(found.to_json())
    else:
        echo_block(str(found))


def merge(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Folder of the model before tuning.")],
    tuned: Annotated[str, typer.Argument(metavar="TUNED", help="Folder of the tuned model, or of a peft adapter.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the merged model.")],
    alpha: Annotated[
        str, typer.Option(metavar="SHARE", help='Share of the tuned weights, 0 to 1, or "auto": by held-out texts.')
    ] = "auto",
    old: Texts = "general",
    new: Annotated[
        str | None, typer.Option(metavar="FILE", help="Held-out texts of the new kind, for --alpha auto.")
    ] = None,
) -> None:
    """Merge a tuned language model back toward its base (WiSE-FT).

    Weights are (1 - alpha) * BASE + alpha * TUNED. With auto, alpha is the multiple of 0.1 with the
    lowest sum of losses per token on held-out old and new texts.

    \b
    Example:
      tmln merge base/ tuned/ --alpha auto --new held_out.jsonl -o merged/
    """
    from tmln.integrations.language_retention import find_texts, score_texts
    from tmln.integrations.wise_ft import choose_alpha, interpolate, load_weights

    share = None if alpha == "auto" else _read_share(alpha)
    if share is None and new is None:
        raise ValueError("--alpha auto needs held-out texts of the new kind: give --new FILE, or --alpha 0.5")
    held = [] if new is None else [find_texts(old), find_texts(new)]
    measured, start, state = load_weights(base, tuned)
    model = measured.model
    if share is not None:
        model.load_state_dict(interpolate(start, state, share))
    else:

        def losses() -> tuple[float, float]:
            means = []
            for texts in held:
                lost, counts = score_texts(measured, texts)
                means.append(sum(lost) / sum(counts))
            return means[0], means[1]

        share, readings = choose_alpha(model, start, state, losses)
        echo("alpha  old texts  new texts  (nats per token)")
        for value, before, after in readings:
            echo(f"{value:5.1f}  {before:9.3f}  {after:9.3f}{'  (chosen)' * (value == share)}")
    model.save_pretrained(output)  # type: ignore[operator]
    measured.tokenizer.save_pretrained(output)
    echo(f"wrote {output}: {1 - share:.2g} of {base}, {share:.2g} of {tuned}")


def _read_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f'--alpha {text}: give a share of the tuned weights from 0 to 1, or "auto"')
    return share
