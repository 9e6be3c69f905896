"""A language model learns two new domains: what they cost of what it knew, for each method.

``python -m benchmarks.language --out runs.jsonl`` trains (a stopped study goes on);
``--draw front.svg`` draws the front. Needs stories15m and the O-LoRA texts in TMLN_DATA.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from tmln.integrations.continual_trainer import ContinualTrainer
from tmln.integrations.language_retention import Measured, score_texts
from tmln.integrations.wise_ft import choose_alpha, interpolate
from tmln.plots.figure import new_figure, save_figure

TOKENS, BATCH, EPOCHS = 48, 8, 2
DOMAINS = {"news": "TC_agnews_train.json", "reviews": "SC_yelp_train.json"}
PARTS = {"train": 64, "validation": 16, "test": 32}
STORIES = {"train": 64, "validation": 16, "test": 48}
Texts = Mapping[str, list[str]]  # by part


@dataclass(frozen=True)
class Method:
    """Options of the trainer, the learning rate, and the rank of adapters if they are trained."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = 5e-4
    rank: int = 0


def keep(**options: Any) -> dict[str, Any]:
    """Return options with stories at hand for the Fisher, and none replayed."""
    return {"replay": "stories", "replay_ratio": 0.0, **options}


METHODS = (
    Method("naive"),
    *(Method(f"replay {100 * ratio:g}%", {"replay": "stories", "replay_ratio": ratio}) for ratio in (0.01, 0.05, 0.2)),
    *(Method(f"ewc {s:g}", keep(penalty="ewc", settings={"penalty.strength": s})) for s in (1.0, 10.0)),
    *(Method(f"tmln {d:g}", keep(step="tmln", settings={"step.damping": d})) for d in (1.0, 0.01)),
    Method("tmln 0.01 + replay 5%", {"replay": "stories", "step": "tmln", "settings": {"step.damping": 0.01}}),
    Method("mofo", {"step": "mofo"}),
    Method("lora", lr=2e-3, rank=8),
    Method("olora", {"penalty": "olora"}, lr=2e-3, rank=8),
)


def read_domain(path: Path, parts: Mapping[str, int] = PARTS) -> Texts:
    """Return texts of a domain in parts, in the file's order, without those of a few words."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    texts = (
        " ".join(row["sentence"].replace("\\n", " ").replace("Title:", " ").replace("Text:", " ").split())
        for row in rows
    )
    return split([text for text in texts if len(text) > 100], parts)


def split(texts: Sequence[str], parts: Mapping[str, int]) -> Texts:
    """Return consecutive texts for each part."""
    left = iter(texts)
    found = {part: list(islice(left, count)) for part, count in parts.items()}
    if short := [part for part, count in parts.items() if len(found[part]) < count]:
        raise ValueError(f"too few texts for {short[0]}")
    return found


def sample_stories(model: Any, tokenizer: Any, parts: Mapping[str, int] = STORIES) -> Texts:
    """Return texts that the model writes itself: what it knows, where its training data are not at hand."""
    torch.manual_seed(0)
    begin = torch.full((sum(parts.values()), 1), model.config.bos_token_id)
    ids = model.generate(begin, do_sample=True, max_new_tokens=TOKENS, min_new_tokens=TOKENS, pad_token_id=0)
    return split([tokenizer.decode(row, skip_special_tokens=True) for row in ids], parts)


def features(tokenizer: Any, texts: Sequence[str]) -> list[dict[str, Any]]:
    rows = [tokenizer(text, truncation=True, max_length=TOKENS)["input_ids"] for text in texts]
    return [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids} for ids in rows]


def collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Pad token ids and masks with 0, labels with -100."""
    width = max(len(row["input_ids"]) for row in rows)
    pads = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        key: torch.tensor([[*row[key], *[pad] * (width - len(row[key]))] for row in rows]) for key, pad in pads.items()
    }


def loss_of(model: Any, tokenizer: Any, texts: Sequence[str]) -> float:
    """Return nats per token."""
    lost, counts = score_texts(Measured(model, tokenizer, TOKENS, 16), texts)
    return sum(lost) / sum(counts)


def train(base: Any, tokenizer: Any, method: Method, stories: Texts, domains: Sequence[Texts], seed: int) -> Any:
    """Return the model after all domains, one after another."""
    torch.manual_seed(seed)
    model = copy.deepcopy(base)
    if method.rank:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=method.rank, target_modules="all-linear"))
    from transformers import TrainingArguments

    previous = None
    with tempfile.TemporaryDirectory() as folder:
        for number, domain in enumerate(domains):
            args = TrainingArguments(
                f"{folder}/{number}", learning_rate=method.lr, num_train_epochs=EPOCHS, seed=seed, use_cpu=True,
                per_device_train_batch_size=BATCH, save_strategy="no", report_to="none", disable_tqdm=True,
                logging_strategy="no",
            )  # fmt: skip
            options = dict(method.options)
            if options.get("replay") == "stories":
                options["replay"] = features(tokenizer, stories["train"])
            previous = ContinualTrainer(
                model, args, train_dataset=features(tokenizer, domain["train"]), data_collator=collate,
                previous=previous, **options,
            )  # fmt: skip
            previous.train()
    return model


def readings(model: Any, tokenizer: Any, stories: Texts, domains: Mapping[str, Texts]) -> dict[str, float]:
    """Return nats per token on the test texts of everything."""
    return {name: loss_of(model, tokenizer, texts["test"]) for name, texts in {"stories": stories, **domains}.items()}


def study(
    base: Any,
    tokenizer: Any,
    stories: Texts,
    domains: Mapping[str, Texts],
    seeds: Sequence[int],
    done: Sequence[Mapping[str, Any]],
    methods: Sequence[Method] = METHODS,
) -> Iterator[dict[str, Any]]:
    """Yield the runs that are not done: method, seed, nats per token of each domain, seconds."""
    known = {(run["method"], run["seed"]) for run in done}
    if ("base", 0) not in known:
        yield {"method": "base", "seed": 0, "loss": readings(base, tokenizer, stories, domains), "seconds": 0.0}
    for seed in seeds:
        for method in methods:
            merges = method.name == "naive" and ("wise-ft auto", seed) not in known
            if (method.name, seed) in known and not merges:
                continue
            start = time.process_time()
            model = train(base, tokenizer, method, stories, list(domains.values()), seed)
            seconds = time.process_time() - start
            yield {
                "method": method.name,
                "seed": seed,
                "loss": readings(model, tokenizer, stories, domains),
                "seconds": seconds,
            }
            if merges:
                yield from merged(base, model, tokenizer, stories, domains, seed, seconds)


def merged(
    base: Any, model: Any, tokenizer: Any, stories: Texts, domains: Mapping[str, Texts], seed: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield WiSE-FT of the naive model: half of it, and by the validation texts of old and new."""
    start, end = ({k: v.detach().clone() for k, v in one.state_dict().items()} for one in (base, model))
    news = [text for domain in domains.values() for text in domain["validation"]]

    def losses() -> tuple[float, float]:
        return loss_of(model, tokenizer, stories["validation"]), loss_of(model, tokenizer, news)

    model.load_state_dict(interpolate(start, end, 0.5))
    found = {"seed": seed, "seconds": seconds}
    yield {"method": "wise-ft 0.5", **found, "loss": readings(model, tokenizer, stories, domains)}
    alpha, _ = choose_alpha(model, start, end, losses, (0.2, 0.4, 0.6, 0.8, 1.0))
    yield {"method": "wise-ft auto", **found, "loss": readings(model, tokenizer, stories, domains), "alpha": alpha}


def summarise(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[float], list[float], list[Mapping[str, Any]]]]:
    """Return for each method its new-domain losses, its forgetting of stories, and its runs."""
    base = next(run for run in runs if run["method"] == "base")["loss"]
    rows = []
    for name in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in runs if run["method"] == name]
        new = [statistics.mean(value for key, value in run["loss"].items() if key != "stories") for run in own]
        rows.append((name, new, [run["loss"]["stories"] - base["stories"] for run in own], own))
    return rows


def table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the Markdown table: perplexity of the new domains, what was forgotten, and seconds."""
    lines = [
        "| method | perplexity, new domains | news | reviews | forgetting, nats per token | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, new, lost, own in sorted(summarise(runs), key=lambda row: statistics.mean(row[1])):
        each = [
            math.exp(statistics.mean(run["loss"][key] for run in own)) for key in own[0]["loss"] if key != "stories"
        ]
        cells = [f"{math.exp(statistics.mean(new)):.0f}", *(f"{value:.0f}" for value in each)]
        spread = f" ± {statistics.stdev(lost):.2f}" if len(lost) > 1 else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {statistics.mean(lost):.2f}{spread} | {len(own)} |")
    return lines


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that no other beats in both coordinates, lower being better.

    >>> front({"a": (1.0, 3.0), "b": (2.0, 1.0), "c": (2.0, 3.0)})
    ['a', 'b']
    """
    return [
        name
        for name, (x, y) in points.items()
        if not any(u <= x and v <= y and (u, v) != (x, y) for u, v in points.values())
    ]


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw new-domain perplexity against forgetting, with the front."""
    points = {name: (statistics.mean(lost), math.exp(statistics.mean(new))) for name, new, lost, _ in summarise(runs)}
    best = sorted(front(points), key=lambda name: points[name])
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    axes.plot(*zip(*(points[name] for name in best), strict=True), color="0.7", zorder=1)
    for number, name in enumerate(sorted(points, key=lambda name: points[name])):
        axes.scatter(*points[name], s=24, color="C0" if name in best else "0.5", zorder=2)
        above = 4 if number % 2 else -10  # in turns, as some points are close to each other
        axes.annotate(name, points[name], textcoords="offset points", xytext=(5, above), fontsize=8)
    axes.margins(x=0.12)
    axes.set_yscale("log")
    axes.set_xlabel("forgetting of stories, nats per token")
    axes.set_ylabel("perplexity on the new domains")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="a language model learns two new domains")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TMLN_DATA", "data")))
    parser.add_argument("--out", type=Path, default=Path("language.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", type=Path, help="draw what is done to this file, and train nothing")
    given = parser.parse_args()
    runs = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.is_file() else []
    if given.draw is not None:
        draw(runs, given.draw)
        print("\n".join(table(runs)))
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(given.data / "stories15m", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(given.data / "stories15m")
    domains = {name: read_domain(given.data / "text" / "olora" / file) for name, file in DOMAINS.items()}
    stories = sample_stories(base, tokenizer)
    for run in study(base, tokenizer, stories, domains, range(given.seeds), runs):
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(run, flush=True)


if __name__ == "__main__":
    main()
