"""Texts from files, and the token ids of texts, for language models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any


def read_rows(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return the rows of a file: objects of ``.jsonl``; of other files ``{"text": paragraph}``."""
    path = Path(path)
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        rows = [{"text": text.strip()} for text in content.split("\n\n") if text.strip()]
    else:
        rows = []
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}; every line must be a JSON object") from None
                if not isinstance(row, dict):
                    raise ValueError(f'{path}, line {number} is no JSON object; write {{"text": "..."}}')
                rows.append(row)
    if not rows:
        raise ValueError(f"{path} has no texts")
    return rows


def read_texts(path: str | PathLike[str]) -> list[str]:
    """Return the texts of a file: of ``.jsonl`` the field ``text``, of others the paragraphs."""
    rows = read_rows(path)
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get("text"), str):
            raise ValueError(f'{path}: row {number} has no "text"; its fields are {", ".join(map(str, row))}')
    return [row["text"] for row in rows]


def longest_input(model: Any, asked: int = 512) -> int:
    """Return how many tokens of a text are read: as many as asked, at most what the model takes."""
    known = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return min(asked, known) if isinstance(known, int) and known > 0 else asked


def make_features(
    rows: Sequence[Mapping[str, Any]], like: Mapping[str, Any], tokenizer: Any, max_length: int
) -> list[dict[str, Any]]:
    """Return rows with the fields of the sample ``like``, tokenised if it has token ids.

    ``labels`` that a row lacks are its token ids, as for language modelling.
    """
    found = []
    for number, row in enumerate(rows, 1):
        row = dict(row)
        if "input_ids" in like and "input_ids" not in row and isinstance(row.get("text"), str):
            if tokenizer is None:
                raise ValueError("replay has texts to tokenise: give the trainer processing_class=tokenizer")
            row |= tokenizer(row["text"], truncation=True, max_length=max_length)
        if "input_ids" in row:
            row.setdefault("labels", list(row["input_ids"]))
            row.setdefault("attention_mask", [1] * len(row["input_ids"]))
        if missing := [key for key in like if key not in row]:
            raise ValueError(
                f"replayed sample {number} has no field {missing[0]!r}, which the training samples have; "
                f"its fields are {', '.join(map(str, row))}"
            )
        found.append({key: row[key] for key in like})
    return found
