"""Heads in closed form: functions of sums over all samples seen, and of nothing else.

Sums can be added in any order, so tasks learned one after another give the head of all tasks
learned at once, and can be subtracted, so samples can be removed. All of it is exact, to rounding,
as long as the features stay the same: train nothing (step ``frozen``) or the first task only
(``first-session``).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.process_group import Ranks
from tmln.methods import Answer, BuildContext, Features, MemoryConditions, MemoryTerm, Settings, TaskContext
from tmln.methods.answers.feature_cache import FeatureCache
from tmln.methods.answers.memory import LayerSettings
from tmln.methods.answers.ncm import fit_inverse_temperature
from tmln.methods.answers.sums import (
    FeatureBatch,
    Places,
    batch_rows,
    grow_dim,
    join_batches,
    keep_first,
    mirror_lower_,
)
from tmln.methods.features import replace_layer
from tmln.progress import track

NEVER = -1e4  # the score of classes that were not met in an exported head
UNMET = 30.0  # how far below the lowest score classes that were not met are: a probability of 1e-13
FITTED = 256  # kept samples that are used at a time: a new class costs the same, however many there are
KEPT = 1024  # kept samples of all classes together; of more than 102 classes fewer than ten each
ROWS = 256  # samples whose products are added at a time
CPU = torch.device("cpu")


class ClosedFormSettings(LayerSettings):
    """Settings of all heads in closed form."""

    calibration: int = Field(
        10,
        ge=0,
        description="samples of each class whose features are kept, for probabilities; 0 keeps no sample",
    )


class ClosedFormAnswer(Answer[Any]):
    """A head that is a function of sums: ``counts``, ``features``, ``squares`` and its own.

    A subclass adds sums of its own (:meth:`add_own_sums`), computes the head (:meth:`solve`) and
    its scores. The head is computed when it is first needed: by a prediction, a log, or a save.

    Attributes:
        sums: float64 tensors on the CPU. ``class_dims`` names those with a dimension of classes,
            ``symmetric_sums`` those whose upper half is filled when all samples are added.
        kept: features of the first ``calibration`` samples of every class, float32; fewer of each
            where classes are so many that there would be more than ``KEPT``.
        kept_y: labels of ``kept``.
        fitted: numbers chosen by the sums or the kept samples, the inverse temperature too.
        head: what :meth:`solve` returned, None until it is needed; it is in no checkpoint.
    """

    Settings: ClassVar[type[Settings]] = ClosedFormSettings
    state_names: ClassVar[tuple[str, ...]] = ("sums", "kept", "kept_y", "fitted")
    class_dims: ClassVar[dict[str, int]] = {"counts": 0, "features": 0}
    symmetric_sums: ClassVar[tuple[str, ...]] = ()
    needs_boundary = True

    def __init__(self, settings: Any, context: BuildContext) -> None:
        """Start with empty sums."""
        super().__init__(settings, context)
        self.features = Features(settings.layer, "answer.layer")
        step: Any = context.components["step"]
        self.is_frozen = not step.trains_at(step.settings, 1)
        self.cache = FeatureCache() if self.is_frozen else None
        self.sums: dict[str, Tensor] = {}
        self.kept, self.kept_y = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
        self.fitted: dict[str, float] = {}
        self.head: Any = None

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return the sums, and the kept samples once every class has all of them."""
        sums = [MemoryTerm("sums", "C", 2), MemoryTerm("sums", "dC", 2), MemoryTerm("sums", "doubles")]
        most = settings.calibration
        return [*sums, MemoryTerm("kept", "dC", most), MemoryTerm("kept_y", "C", 2 * most)]

    # -- what a subclass defines -------------------------------------------------------------------

    def add_own_sums(self, total: dict[str, Tensor], features: Tensor, y: Tensor) -> None:
        """Add the subclass's sums over these samples to ``total``, of symmetric ones half."""

    def solve(self) -> Any:
        """Return the head, what :meth:`raw_scores` needs; put what it chooses into :attr:`fitted`.

        What is there already, as after loading, is not chosen again.
        """
        raise NotImplementedError

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return the scores of all classes, [n, classes], before the temperature."""
        raise NotImplementedError

    def linear_form(self) -> tuple[list[nn.Module], Tensor, Tensor]:
        """Return modules that come first, then weight [d, classes] and bias of raw scores."""
        raise NotImplementedError

    # -- sums --------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device | None:
        """The CPU: sums are float64, which not every device has."""
        return CPU

    @property
    def counts(self) -> Tensor:
        """Samples of each class, [classes]."""
        return self.sums["counts"] if self.sums else torch.zeros(0, dtype=torch.float64)

    @property
    def solution(self) -> Any:
        """The head, computed when it is first needed."""
        if self.head is None:
            self.head = self.solve()
        return self.head

    def prepare(self) -> None:
        """Compute the head, so that it need not be computed by the next prediction."""
        if float(self.counts.sum()):
            _ = self.solution

    @property
    def diagnostics(self) -> Mapping[str, float]:  # type: ignore[override]
        """The number of samples, and what was chosen by them: the head is computed."""
        self.prepare()
        return {"samples": float(self.counts.sum()), **self.fitted} if self.head is not None else {}

    def add_sums(self, total: dict[str, Tensor], features: Tensor, y: Tensor, classes: int) -> None:
        """Add all sums over these samples to ``total``, which has a row for each of ``classes``."""
        if not total:
            total["counts"] = torch.zeros(0, dtype=torch.float64)
            total["features"] = features.new_zeros(0, features.shape[1], dtype=torch.float64)
            total["squares"] = torch.zeros(1, dtype=torch.float64)
        for name, dim in self.class_dims.items():
            if name in total:
                total[name] = grow_dim(total[name], dim, classes)
        wide = features.double()
        total["counts"] += torch.bincount(y, minlength=len(total["counts"]))
        total["features"].index_add_(0, y, wide)
        total["squares"] += wide.square().sum()
        self.add_own_sums(total, features, y)

    def statistics(self, batches: Iterable[FeatureBatch]) -> dict[str, Tensor]:
        """Return all sums over batches of features and labels, with the least number of classes."""
        total: dict[str, Tensor] = {}
        for batch in join_batches(batches, ROWS):
            self.add_sums(total, batch.features, batch.y, batch.classes)
        for name in self.symmetric_sums:
            if name in total:
                mirror_lower_(total[name])
        return total

    def sum_task(self, batches: Iterable[FeatureBatch], labels: list[int], ranks: Ranks) -> dict[str, Tensor]:
        """Return the sums over a task's samples, of which each process has its share.

        ``labels``: of the places that the batches have, complete when they are read.
        """
        total = self.statistics(batches)
        ranks.sum_tensors_(list(total.values()))
        return total

    def add(self, change: dict[str, Tensor], labels: list[int], sign: float = 1.0) -> None:
        """Add sums of some samples, or subtract them; a head that was computed is dropped.

        ``labels``: the class of each row of ``change``.
        """
        for name, value in change.items():
            dim = self.class_dims.get(name)
            if dim is not None:
                old = self.sums.get(name, value.new_zeros([0 if k == dim else n for k, n in enumerate(value.shape)]))
                self.sums[name] = grow_dim(old, dim, max(labels) + 1)
                self.sums[name].index_add_(dim, torch.tensor(labels), value, alpha=sign)
            elif name in self.sums:
                self.sums[name].add_(value, alpha=sign)
            else:
                self.sums[name] = value
        self.fitted, self.head = {}, None

    def begin(self, context: TaskContext) -> None:
        """Find the layer before the task is learned: an error comes early."""
        self.features.find(context.model, context.example_inputs())

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        """Add the sums of the task's samples, in one pass."""
        met = {*(self.counts > 0).nonzero().squeeze(1).tolist(), *context.classes}
        most, kept, places = self._most_kept(len(met)), (self.kept, self.kept_y), Places()
        self.head = None  # its memory is needed

        def batches() -> Iterator[FeatureBatch]:
            nonlocal kept
            for x, y in track(context.samples(), "batches of features", total=context.batches_in_pass):
                rows = context.ranks.rows(len(y))
                inputs, _ = context.prepare_batch(x[rows], y[rows])
                features = self._check(self._features_of(context.model, inputs, keep=False)[0])
                y = y.cpu()
                if bool((torch.bincount(kept[1], minlength=int(y.max()) + 1)[y] < most).any()):
                    kept = keep_first(*kept, context.ranks.gather_rows(features, len(y)), y, most)
                yield batch_rows(places, features, y, rows)

        with preserve_model(context.model, training=False):
            total = self.sum_task(batches(), places.labels, context.ranks)
        self.add(total, places.labels)
        self._warn_of_empty(context)
        self.kept, self.kept_y = kept
        self._warn_of_equal()

    def remove(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Subtract samples from the sums, as if they had never been learned.

        Args:
            batches: inputs as the model takes them, and labels.

        Raises:
            ValueError: more samples of a class than were learned; nothing is changed.
        """
        kept, labels, model, places = self.kept, self.kept_y, self.model, Places()

        def read() -> Iterator[FeatureBatch]:
            nonlocal kept, labels
            for x, y in batches:
                features, y = self._check(self._features_of(model, x, keep=False)[0]), y.cpu()
                if len(kept):
                    wide = kept.double()
                    apart = torch.cdist(wide, features.double()) > 1e-4 * wide.norm(dim=1, keepdim=True)
                    stays = (apart | (labels[:, None] != y[None])).all(1)
                    kept, labels = kept[stays], labels[stays]
                yield batch_rows(places, features, y, slice(None))

        with torch.no_grad(), preserve_model(model, training=False):
            change = self.statistics(read())
        if not change:
            return
        counts = grow_dim(self.counts, 0, max(places.labels) + 1)[places.labels]
        few = [label for label, left in zip(places.labels, counts - change["counts"], strict=True) if left < 0]
        if few:
            raise ValueError(f"class {min(few)} has fewer samples in the head than are to be removed")
        self.add(change, places.labels, -1.0)
        self.sums["features"][self.counts == 0] = 0.0  # without what rounding left
        self.kept, self.kept_y = kept, labels

    def _most_kept(self, classes: int) -> int:
        """Return how many samples of each class are kept where so many classes are met."""
        most: int = self.settings.calibration
        return min(most, max(1, KEPT // max(classes, 1)))

    def _warn_of_equal(self) -> None:
        total = float(self.counts.sum())
        if int((self.counts > 0).sum()) > 1:
            mean = self.sums["features"].sum(0) / total
            spread = float(self.sums["squares"]) / total - float(mean.square().sum())
            if spread <= 1e-12 * float(self.sums["squares"]) / total:
                warnings.warn(
                    f"the features of all {total:.0f} samples are equal, so that no class can be told from another: "
                    "look at the inputs, or name another layer (answer.layer)",
                    stacklevel=2,
                )

    # -- the temperature ---------------------------------------------------------------------------

    def fit_temperature(self, scores: Tensor, y: Tensor) -> float:
        """Return the inverse temperature by scores [n, classes] of samples left out of the head."""
        met = self.counts > 0
        return fit_inverse_temperature(scores[:, met], met.cumsum(0)[y] - 1)

    def calibration_samples(self) -> tuple[Tensor, Tensor]:
        """Return features and labels of at most ``FITTED`` samples not alone in their class."""
        rows = (self.counts[self.kept_y] > 1).nonzero().squeeze(1)
        rows = rows if len(rows) <= FITTED else rows[torch.linspace(0, len(rows) - 1, FITTED).long()]
        return self.kept[rows], self.kept_y[rows]

    def _warn_of_empty(self, context: TaskContext) -> None:
        met = set((self.counts > 0).nonzero().squeeze(1).tolist())
        if empty := sorted(set(context.classes) - met):
            warnings.warn(f"no samples of class {', '.join(map(str, empty))}: it is never predicted", stacklevel=2)

    # -- features and scores -----------------------------------------------------------------------

    def _features_of(self, model: nn.Module, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None, int]:
        """Return features, the output (None of a frozen model) and the number of outputs."""
        layer = self.features.get_layer(model, x)
        outputs = int(getattr(layer, "out_features", 0))
        if self.cache is None or not outputs:
            output, features = self.features.extract(model, x)
            return features, output, output.shape[1]
        found = self.cache.get(model, layer, x, lambda: self.features.extract(model, x)[1], keep)
        return found, None, outputs

    def _check(self, features: Tensor) -> Tensor:
        """Return features on the CPU, in float32 or float64; raise if the head cannot take them."""
        found = features.to(CPU)
        found = found if found.dtype == torch.float64 else found.float()
        if not bool(found.isfinite().all()):
            raise FloatingPointError("features are not finite: look at the inputs, or at the weights of the backbone")
        if self.sums and found.shape[1] != self.sums["features"].shape[1]:
            raise ValueError(
                f"the layer has {found.shape[1]} features, but the head was computed from "
                f"{self.sums['features'].shape[1]}: name the same layer (answer.layer) as before"
            )
        return found

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output (of a frozen model: the scores), and the scores of the head.

        Their softmax is a probability. Classes that were not met get next to none.
        """
        met = self.counts > 0
        if not bool(met.any()) and self.cache is None:
            return super().scores(model, x)
        found, output, outputs = self._features_of(model, x, keep=True)
        if not bool(met.any()):
            output = self.features.get_layer(model, x)(found) if output is None else output
            return output, output
        features = self._check(found)
        _ = self.solution  # which may choose the temperature
        raw = self.raw_scores(features) * self.fitted.get("inverse_temperature", 1.0)
        scores = raw.new_empty(len(features), max(outputs, len(met)))
        scores[:] = raw[:, met].amin(1, keepdim=True) - UNMET
        scores[:, met.nonzero().squeeze(1)] = raw[:, met]
        scores = scores.to(x.device)
        return (scores if output is None else output), scores

    @torch.no_grad()
    def features_of(self, model: nn.Module, x: Tensor) -> Tensor | None:
        """Return the features of inputs of a frozen model, [n, d]; None of a model that learns."""
        return None if self.cache is None else self._features_of(model, x, keep=False)[0].cpu()

    def label_features(self, features: Tensor) -> Tensor:
        """Return the label of the highest score for features that :meth:`features_of` gave."""
        met = (self.counts > 0).nonzero().squeeze(1)
        return met[self.raw_scores(self._check(features))[:, met].argmax(1)]

    def score_features(self, features: Tensor) -> Tensor:
        """Return the scores of all classes for features that :meth:`features_of` gave."""
        raw = self.raw_scores(self._check(features))
        return raw * self.fitted.get("inverse_temperature", 1.0)

    @contextmanager
    def in_model(self, model: nn.Module, x: Tensor) -> Iterator[None]:
        """Replace the model's last layer by the head, whose output then is :meth:`scores`.

        Args:
            model: the network.
            x: inputs to find the layer by.
        """
        met = self.counts > 0
        layer = self.features.get_layer(model, x)
        outputs = max(int(getattr(layer, "out_features", 0)), len(met))
        first, weight, bias = self.linear_form()
        scale = self.fitted.get("inverse_temperature", 1.0)
        head = nn.Linear(len(weight), outputs)
        nn.init.zeros_(head.weight)
        nn.init.constant_(head.bias, NEVER)
        rows = met.nonzero().squeeze(1)
        with torch.no_grad():
            head.weight[rows] = (weight.T[rows] * scale).float()
            head.bias[rows] = (bias[rows] * scale).float()
        dtype = next((p.dtype for p in layer.parameters()), torch.float32)  # inputs may be tokens
        made = (nn.Sequential(*first, head) if first else head).to(x.device, dtype).eval()
        with replace_layer(model, layer, made):
            yield

    def relabel(self, into: Mapping[int, int | None]) -> None:
        """Add the sums of merged classes, and drop those of removed ones.

        Merging is exact. Of a removed class its own sums are dropped; sums over all classes
        together cannot be separated without its samples (:meth:`remove` does that), so that they
        change by :meth:`leave_out`, which keeps the scores of the other classes.
        """
        for label, target in into.items():
            if label >= len(self.counts) or not self.counts[label]:
                continue
            if target is None:
                self.leave_out(label)
            for name, dim in self.class_dims.items():
                if name in self.sums:
                    value = self.sums[name] = self.sums[name].clone()
                    if target is not None:
                        value.select(dim, target).add_(value.select(dim, label))
                    value.select(dim, label).zero_()
        found = [into.get(label, label) for label in self.kept_y.tolist()]
        rows = torch.tensor([row for row, label in enumerate(found) if label is not None], dtype=torch.int64)
        self.kept = self.kept[rows] if len(self.kept) else self.kept
        self.kept_y = torch.tensor([label for label in found if label is not None], dtype=torch.int64)

    def leave_out(self, label: int) -> None:
        """Take a class's part from sums over all classes: its mean's, and its share of the rest."""
        counts, features = self.sums["counts"], self.sums["features"]
        met = counts > 0
        between = features[met].square().sum(1) / counts[met]
        own = features[label].square().sum() / counts[label]
        within = self.sums["squares"] - between.sum()
        self.sums["squares"] = self.sums["squares"] - own - within * (counts[label] / counts.sum())

    def load_state_dict(self, state: Any) -> None:
        """Load sums, kept samples and what was fitted; the head is computed when it is needed."""
        super().load_state_dict(state)
        self.head = None
