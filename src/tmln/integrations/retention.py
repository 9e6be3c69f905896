"""Retention of a model's abilities: metrics on anchor sets before, during and after training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tmln.analysis.text_table import grid_markdown
from tmln.curvature.batches import call_model, read_batch
from tmln.curvature.likelihoods import IGNORED, Likelihood, LogLikelihood, shift_labels
from tmln.curvature.preserve_state import preserve_model
from tmln.report.page import plain_page

Values = dict[str, float]
LOWER_IS_BETTER = ("loss", "perplexity")  # ends of names


def scores(model: nn.Module, batches: Iterable[Any], likelihood: str | LogLikelihood | None = None) -> Values:
    """Return the mean of -log p over labels, and accuracy and perplexity where they exist.

    Accuracy if labels are classes or tokens; perplexity, the exponential of the mean, if tokens.
    The model is evaluated in eval mode; its flags and the random state are restored.
    """
    score = Likelihood(model, likelihood)
    device = next(model.parameters()).device
    lost = right = scored = judged = 0.0
    with preserve_model(model, training=False), torch.no_grad():
        for raw in batches:
            batch = read_batch(raw).to(device)
            output, target = call_model(model, batch), batch.target
            lost -= float(score(output, target).double().sum())
            known = isinstance(target, Tensor) and not target.is_floating_point()
            labels = shift_labels(target) if score.shifts else target
            counted = int((labels != IGNORED).sum()) if known else batch.size
            scored += counted
            if known and score.name in ("classes", "tokens", "masked-tokens"):
                predicted = output.argmax(1 if score.name == "classes" else -1)
                right += int(((predicted == labels) & (labels != IGNORED)).sum())
                judged += counted
    if not scored:
        raise ValueError("an anchor set has no labels to score; give it samples with labels")
    found = {"loss": lost / scored, **({"accuracy": right / judged} if judged else {})}
    if score.name in ("tokens", "masked-tokens"):
        found["perplexity"] = float(torch.tensor(found["loss"], dtype=torch.float64).exp())  # inf, where it overflows
    return found


def worse_by(metric: str, before: float, after: float) -> float:
    """Return by how much a metric is worse: a fall, or a rise of losses; negative if it is better.

    >>> worse_by("accuracy", 0.75, 0.5), worse_by("loss", 1.0, 1.5)
    (0.25, 0.5)
    """
    return after - before if metric.endswith(LOWER_IS_BETTER) else before - after


@dataclass
class AnchorRetention:
    """Readings of anchor sets: of each moment of the training, of each set, its metrics.

    >>> kept = AnchorRetention()
    >>> kept.add("before", {"general": {"accuracy": 0.9}})
    >>> kept.add("after", {"general": {"accuracy": 0.8}})
    >>> print(kept)
    general: accuracy 0.900 -> 0.800
    <BLANKLINE>
    | set | metric | before | after | worse by |
    | --- | ---: | ---: | ---: | ---: |
    | general | accuracy | 0.900 | 0.800 | +0.100 |
    >>> kept.beyond({"accuracy": 0.05})
    ['general: accuracy 0.900 -> 0.800, worse by 0.100, more than 0.05']
    """

    moments: list[str] = field(default_factory=list)
    readings: list[dict[str, Values]] = field(default_factory=list)

    def add(self, moment: str, found: Mapping[str, Mapping[str, float]]) -> None:
        """Add one reading of all sets."""
        self.moments.append(moment)
        self.readings.append({name: dict(values) for name, values in found.items()})

    def beyond(self, bounds: Mapping[str, float]) -> list[str]:
        """Return a sentence for each set that is worse than before by more than its bound."""
        found = []
        for name, metric, before, after in self._changes():
            worse = worse_by(metric, before, after)
            if metric in bounds and not worse <= bounds[metric]:  # so that nan is beyond any bound
                line = f"{name}: {metric} {before:.3f} -> {after:.3f}, worse by {worse:.3f}"
                found.append(f"{line}, more than {bounds[metric]}")
        return found

    def words(self) -> str:
        """Return the sentence above the table."""
        return "; ".join(f"{name}: {metric} {old:.3f} -> {new:.3f}" for name, metric, old, new in self._changes())

    def lines(self) -> list[list[str]]:
        """Return the table, heading first."""
        table = [["set", "metric", *self.moments, "worse by"]]
        for name, metric, before, after in self._changes():
            values = [f"{reading[name][metric]:.3f}" for reading in self.readings]
            table.append([name, metric, *values, f"{worse_by(metric, before, after):+.3f}"])
        return table

    def page(self, beyond: Iterable[str] = ()) -> str:
        """Return the table as an HTML page in the style of the report."""
        return plain_page("What was kept", [self.words(), *beyond], self.lines())

    def __str__(self) -> str:
        return f"{self.words()}\n\n{grid_markdown(self.lines())}".rstrip()

    def _changes(self) -> list[tuple[str, str, float, float]]:
        if not self.readings:
            return []
        first, last = self.readings[0], self.readings[-1]
        return [(name, metric, first[name][metric], last[name][metric]) for name in first for metric in first[name]]
