"""Run the benchmarks named on the command line, or all, and print each ratio beside its goal."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import Line

BENCHMARKS = {
    "optimizer": "TMLN's step against SGD's",
    "fisher": "the diagonal Fisher against training passes, loop and vmap",
    "transformers": "the diagonal Fisher of transformers and LoRA against training passes (a quiet machine is needed)",
    "finetune": "ContinualTrainer with TMLN and replay against the plain Trainer, on a small Llama",
    "methods": "a training step of each method against naive SGD",
    "loop": "the learner's loop against a bare one, and against Avalanche (TMLN_AVALANCHE)",
    "weights": "a step with averaged weights against one without",
    "memory": "a memory of 10M samples on disk against one in RAM",
    "executors": "many runs with the default executor against one after another on all cores",
    "devices": "one run over two processes against one, and Fabric on a single device",
    "workers": "many small runs with two workers against one, and what Ray adds to a run",
    "scale": "the cost model of docs/scale.md on larger networks than it was fitted on, as kept",
    "report": "the page of 500 runs in a browser",
    "show": "tmln show and report of 200 runs to their end, tmln demo to its table",
    "own": "data of one's own: reading a folder, tmln predict, tmln learn",
    "learn": "tmln learn with a backbone beside decoding and a forward pass, and a class after 10 and 50 others",
    "sentences": "sentence embeddings of texts against a bare forward pass of the encoder",
    "pretrained": "pre-trained backbones: extraction against the bare forward pass, heads from features, a new class",
    "augment": "batched augmentation against Pillow, prefetch",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or "--help" in names:
        print(f"usage: python -m benchmarks [{' | '.join(BENCHMARKS)} ...]")
        return 2
    console = Console()
    table = Table(
        "benchmark",
        "ratio",
        "goal",
        "",
        title=f"torch {torch.__version__}, {torch.get_num_threads()} threads",
    )
    failed = 0
    for name in names or BENCHMARKS:
        found: Iterator[Line] = importlib.import_module(f"benchmarks.{name}").lines()
        for line in found:
            failed += not line.met
            console.print(f"{line.what}: {line.ratio:.3f} {line.asked}", highlight=False)
            table.add_row(line.what, f"{line.ratio:.3f}", line.asked, line.verdict)
    console.print(table)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
