"""What a fine-tuned causal language model forgot: likelihood, divergence, answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tmln.analysis.text_table import grid_markdown
from tmln.curvature.likelihoods import IGNORED, shift_labels, token_log_likelihood
from tmln.curvature.preserve_state import preserve_model
from tmln.integrations.general_texts import GENERAL
from tmln.integrations.texts import longest_input, read_rows, read_texts
from tmln.report.page import plain_page

RESAMPLES, COVERAGE = 2000, 0.95
ADAPTER = "adapter_config.json"


def sum_log_likelihoods(logits: Tensor, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return of each text sum_t log p(token t+1 | tokens to t), and how many tokens were predicted.

    Logits at a position are compared with the next token; the first token is not predicted, and
    padding is neither predicted nor counted.

    >>> logits = torch.log(torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]]))
    >>> value, count = sum_log_likelihoods(logits, torch.tensor([[0, 1, 0]]), torch.ones(1, 3))
    >>> round(float(value.exp()), 6), int(count)  # 0.5 * 0.25
    (0.125, 2)
    """
    labels = shift_labels(ids.masked_fill(mask == 0, IGNORED))
    return token_log_likelihood(logits.float(), labels), (labels != IGNORED).sum(1)


def divergence(base: Tensor, tuned: Tensor) -> Tensor:
    """Return KL(p || q) of each position, p and q the softmax of the base's and the tuned logits.

    >>> base, tuned = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    >>> round(float(divergence(base, tuned)), 4)  # (log 2 + log 2/3) / 2
    0.1438
    """
    p, q = base.float().log_softmax(-1), tuned.float().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def bootstrap_interval(values: Sequence[float], weights: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of sum(values) / sum(weights), texts drawn with replacement."""
    v, w = np.asarray(values, dtype=float), np.asarray(weights, dtype=float)
    rows = np.random.default_rng(seed).integers(len(v), size=(RESAMPLES, len(v)))
    found = v[rows].sum(1) / w[rows].sum(1)
    low, high = np.quantile(found, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Question:
    """A multiple-choice item; ``answer`` is the index of the right choice."""

    question: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: str | PathLike[str]) -> list[Question]:
    """Read ``{"question", "choices", "answer"}`` of each line; the answer is an index or choice."""
    found = []
    for number, row in enumerate(read_rows(path), 1):
        question, choices, answer = row.get("question"), row.get("choices"), row.get("answer")
        if not isinstance(question, str) or not isinstance(choices, list) or len(choices) < 2:
            raise ValueError(f'{path}: item {number} needs "question" and two or more "choices"')
        if isinstance(answer, str) and answer in choices:
            answer = choices.index(answer)
        if not isinstance(answer, int) or not 0 <= answer < len(choices):
            raise ValueError(f"{path}: item {number} has the answer {answer!r}; give a choice, or its index from 0")
        found.append(Question(question, tuple(map(str, choices)), answer))
    return found


class Measured:
    """A causal model and its tokenizer, for measurements without gradients.

    Args:
        model: the model, plain or of peft.
        tokenizer: its tokenizer.
        max_length: tokens of a text that are read, at most as many as the model takes.
        batch_size: texts in a pass.
        adapters: whether a peft model is measured with its adapters; without, it is its own base.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, max_length: int = 512, batch_size: int = 8, adapters: bool = True
    ) -> None:
        self.model, self.tokenizer, self.batch_size, self.adapters = model, tokenizer, batch_size, adapters
        self.max_length = longest_input(model, max_length)
        self.device = next(model.parameters()).device

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, as many as the model reads."""
        ids: list[int] = self.tokenizer(text, truncation=True, max_length=self.max_length)["input_ids"]
        return ids

    def batches(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield token ids and masks, padded at the end."""
        for start in range(0, len(texts), self.batch_size):
            rows = texts[start : start + self.batch_size]
            width = max(map(len, rows))
            ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
            yield ids.to(self.device), mask.to(self.device)

    @torch.no_grad()
    def logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the logits in evaluation mode; flags and random state stay as they are."""
        model: Any = self.model
        with preserve_model(model, training=False), nullcontext() if self.adapters else model.disable_adapter():
            found: Tensor = model(input_ids=ids, attention_mask=mask).logits
        return found


def score_texts(measured: Measured, texts: Sequence[str]) -> tuple[list[float], list[int]]:
    """Return -log p of each text in nats, and how many of its tokens are predicted."""
    encoded = _encode_all(measured, texts)
    lost: list[float] = []
    counts: list[int] = []
    for ids, mask in measured.batches(encoded):
        value, count = sum_log_likelihoods(measured.logits(ids, mask), ids, mask)
        lost += (-value).tolist()
        counts += count.tolist()
    return lost, counts


def _encode_all(measured: Measured, texts: Sequence[str]) -> list[list[int]]:
    encoded = [ids for ids in map(measured.encode, texts) if len(ids) > 1]
    if not encoded:
        raise ValueError("no text has two tokens: nothing is predicted; give longer texts")
    return encoded


def answer_questions(measured: Measured, questions: Sequence[Question]) -> list[int]:
    """Return whether each answer is right (1 or 0): the choice of the highest log-likelihood.

    Only the tokens after those that question and choice share with the question alone are counted.
    """
    right = []
    for item in questions:
        alone = measured.encode(item.question)
        whole = [measured.encode(f"{item.question} {choice}") for choice in item.choices]
        scores: list[float] = []
        for ids, mask in measured.batches(whole):
            rows = whole[len(scores) : len(scores) + len(ids)]
            shared = torch.tensor([_count_shared(alone, row) for row in rows], device=ids.device)
            labels = ids.masked_fill(mask == 0, IGNORED)
            labels[torch.arange(ids.shape[1], device=ids.device) < shared[:, None]] = IGNORED
            scores += token_log_likelihood(measured.logits(ids, mask).float(), shift_labels(labels)).tolist()
        right.append(int(max(range(len(scores)), key=scores.__getitem__) == item.answer))
    return right


def _count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


@dataclass
class LanguageRetention:
    """What changed from a base to a model that was tuned from it; losses in nats per token.

    Attributes:
        rows: Of each measure its value before and after, the change, and the change's 95% bootstrap
            interval over texts; None where there is none.
        texts: How many texts were measured.
        tokens: How many of their tokens were predicted.
    """

    texts: int = 0
    tokens: int = 0
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, readings: Sequence[float], interval: tuple[float, float] | None = None) -> None:
        """Add a measure by its readings before and after."""
        before, after = readings
        about = {"before": before, "after": after, "change": after - before}
        self.rows[name] = {**about, "interval": None if interval is None else list(interval)}

    @property
    def forgetting(self) -> float:
        """By how many nats per token the texts became less likely; negative if more likely."""
        return float(self.rows["nats per token"]["change"])

    def lines(self) -> list[list[str]]:
        """Return the table, heading first."""
        table = [["measure", "before", "after", "change", "95% interval"]]
        for name, row in self.rows.items():
            ends = row["interval"]
            interval = "" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"
            table.append([name, f"{row['before']:.3f}", f"{row['after']:.3f}", f"{row['change']:+.3f}", interval])
        return table

    def words(self) -> str:
        """Return the sentence above the table."""
        ends = self.rows["nats per token"]["interval"]
        sign = "less" if self.forgetting >= 0 else "more"
        clear = "" if ends[0] * ends[1] > 0 else "; the interval includes no change"
        return (
            f"{self.texts} texts, {self.tokens:,} tokens: {abs(self.forgetting):.3f} nats per token {sign} likely "
            f"than before{clear}"
        )

    def page(self) -> str:
        """Return the table as an HTML page in the style of the report."""
        return plain_page("What was forgotten", [self.words()], self.lines())

    def to_json(self) -> str:
        """Return all numbers as JSON."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        return f"{self.words()}\n\n{grid_markdown(self.lines())}".rstrip()


def measure_retention(
    before: Measured, after: Measured, texts: Sequence[str], questions: Sequence[Question] = ()
) -> LanguageRetention:
    """Measure a tuned model against its base on texts, and on questions if there are any.

    The texts are also the prompts of the divergence: KL from the base's next-token distribution to
    the tuned model's, a mean over all positions.
    """
    encoded = _encode_all(before, texts)
    size = sum(len(text.encode()) for text in texts if len(before.encode(text)) > 1)
    lost: list[list[float]] = [[], []]
    counts: list[int] = []
    apart: list[float] = []
    positions: list[int] = []
    for ids, mask in before.batches(encoded):
        logits = []
        for values, one in zip(lost, (before, after), strict=True):
            logits.append(one.logits(ids, mask))
            value, count = sum_log_likelihoods(logits[-1], ids, mask)
            values += (-value).tolist()
        if logits[0].shape != logits[1].shape:
            raise ValueError(
                f"the base has {logits[0].shape[-1]} tokens and the model {logits[1].shape[-1]}: they have no "
                "vocabulary in common, so neither likelihoods nor divergence compare"
            )
        counts += count.tolist()
        apart += (divergence(*logits) * mask).sum(1).tolist()
        positions += mask.sum(1).tolist()
    tokens = sum(counts)
    means = [sum(values) / tokens for values in lost]
    change = [b - a for a, b in zip(*lost, strict=True)]
    found = LanguageRetention(len(encoded), tokens)
    found.add("nats per token", means, bootstrap_interval(change, counts))
    found.add("perplexity", [_exponential(mean) for mean in means])
    found.add("bits per byte", [sum(values) / math.log(2) / size for values in lost])
    found.add("KL from the base", [0.0, sum(apart) / sum(positions)], bootstrap_interval(apart, positions))
    if questions:
        right = [answer_questions(one, questions) for one in (before, after)]
        differences = [b - a for a, b in zip(*right, strict=True)]
        shares = [sum(values) / len(questions) for values in right]
        found.add("accuracy of answers", shares, bootstrap_interval(differences, [1] * len(questions)))
    return found


def _exponential(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def find_texts(name: str) -> list[str]:
    """Return the texts of a file, or those of tmln for the name ``general``."""
    return list(GENERAL) if name == "general" else read_texts(name)


def load_pair(model: str, base: str | None) -> tuple[Measured, Measured]:
    """Load a base and a model or adapter tuned from it; an adapter shares the weights of its base.

    Args:
        model: folder or name of a model, or of a peft adapter.
        base: folder or name of the base; of an adapter by default the one that it names.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = Path(model) / ADAPTER
    if not config.is_file():
        if base is None:
            raise ValueError(f"{model} is no adapter, which would name its base: give --before BASE")
        tokenizer = AutoTokenizer.from_pretrained(base)
        first, second = (AutoModelForCausalLM.from_pretrained(name) for name in (base, model))
        return Measured(first, tokenizer), Measured(second, tokenizer)
    from peft import PeftModel

    about: Mapping[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    base = base or about.get("base_model_name_or_path")
    if not base:
        raise ValueError(f"{config} names no base: give --before BASE")
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), model)
    tokenizer = AutoTokenizer.from_pretrained(base)
    return Measured(adapted, tokenizer, adapters=False), Measured(adapted, tokenizer)
