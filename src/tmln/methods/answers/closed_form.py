"""Heads in closed form: functions of sums over all samples seen, and of nothing else.

Sums can be added in any order, so tasks learned one after another give the head of all tasks
learned at once, and can be subtracted, so samples can be removed. All of it is exact, to rounding,
as long as the features stay the same: train nothing (step ``frozen``) or the first task only
(``first-session``).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Answer, BuildContext, Features, MemoryConditions, MemoryTerm, Settings, TaskContext
from tmln.methods.answers.feature_cache import FeatureCache
from tmln.methods.answers.memory import LayerSettings
from tmln.methods.answers.ncm import fit_inverse_temperature
from tmln.progress import track

NEVER = -1e4  # the score of classes that were not met in an exported head
UNMET = 30.0  # how far below the lowest score classes that were not met are: a probability of 1e-13
FITTED = 256  # kept samples that are used at a time: a new class costs the same, however many there are
CPU = torch.device("cpu")


class ClosedFormSettings(LayerSettings):
    """Settings of all heads in closed form."""

    calibration: int = Field(
        10,
        ge=0,
        description="samples of each class whose features are kept, for probabilities; 0 keeps no sample",
    )


def sum_by_class(features: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return the sum of the features of each class, [classes, d].

    >>> sum_by_class(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 1]), 2)
    tensor([[0., 0.],
            [4., 6.]])
    """
    return features.new_zeros(classes, features.shape[1]).index_add_(0, y, features)


def grow_dim(value: Tensor, dim: int, size: int) -> Tensor:
    """Return the tensor with zeros appended along ``dim``, up to ``size``."""
    shape = list(value.shape)
    shape[dim] = max(0, size - shape[dim])
    return torch.cat([value, value.new_zeros(shape)], dim)


class ClosedFormAnswer(Answer[Any]):
    """A head that is a function of sums: ``counts``, ``features``, ``squares`` and its own.

    A subclass adds sums of its own (:meth:`own_sums`), and computes the head (:meth:`fit`,
    :meth:`solve`), its scores and its leave-one-out scores.

    Attributes:
        sums: float64 tensors on the CPU. ``class_dims`` names those with a dimension of classes.
        kept: features of the first ``calibration`` samples of every class, float32.
        kept_y: labels of ``kept``.
        fitted: numbers chosen by the sums or the kept samples, the inverse temperature too.
        head: what :meth:`solve` returned, None until it is needed; it is in no checkpoint.
    """

    Settings: ClassVar[type[Settings]] = ClosedFormSettings
    state_names: ClassVar[tuple[str, ...]] = ("sums", "kept", "kept_y", "fitted")
    class_dims: ClassVar[dict[str, int]] = {"counts": 0, "features": 0}
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

    def own_sums(self, features: Tensor, y: Tensor, classes: int) -> dict[str, Tensor]:
        """Return the subclass's sums over these samples."""
        return {}

    def fit(self) -> None:
        """Choose what is not given, such as regularisation, into :attr:`fitted`."""

    def solve(self) -> Any:
        """Return the head: whatever :meth:`raw_scores` needs."""
        raise NotImplementedError

    def raw_scores(self, features: Tensor) -> Tensor:
        """Return the scores of all classes, [n, classes], before the temperature."""
        raise NotImplementedError

    def raw_scores_left_out(self, features: Tensor, y: Tensor) -> Tensor:
        """Return the scores of samples that are in the sums, of the head without each of them."""
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

    def statistics(self, features: Tensor, y: Tensor, classes: int) -> dict[str, Tensor]:
        """Return all sums over these samples, for labels below ``classes``."""
        return {
            "counts": torch.bincount(y, minlength=classes).double(),
            "features": sum_by_class(features, y, classes),
            "squares": features.square().sum().view(1),
            **self.own_sums(features, y, classes),
        }

    def add(self, change: dict[str, Tensor], sign: float = 1.0) -> None:
        """Add sums of some samples, or subtract them; a head that was computed is dropped."""
        classes = max(len(self.counts), len(change["counts"]))
        for name, value in change.items():
            if name in self.class_dims:
                value = grow_dim(value, self.class_dims[name], classes)
            if name in self.sums:
                old = self.sums[name]
                old = grow_dim(old, self.class_dims[name], classes) if name in self.class_dims else old
                value = old.add(value, alpha=sign)
            self.sums[name] = value
        self.head = None

    def begin(self, context: TaskContext) -> None:
        """Find the layer before the task is learned: an error comes early."""
        self.features.find(context.model, context.example_inputs())

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        """Add the sums of the task's samples, in one pass."""
        total: dict[str, Tensor] = {}
        with preserve_model(context.model, training=False):
            for x, y in track(context.samples(), "batches of features"):
                rows = context.ranks.rows(len(y))
                inputs, _ = context.prepare_batch(x[rows], y[rows])
                features = self._checked(self._features_of(context.model, inputs, keep=False)[0])
                y = y.cpu()
                classes = int(y.max()) + 1
                whole = context.ranks.gather_rows(features, len(y)) if self._misses(y) else features
                self._keep(whole, y)
                for name, value in self.statistics(features, y[rows], classes).items():
                    if name in total and name in self.class_dims:
                        most, dim = max(len(total["counts"]), classes), self.class_dims[name]
                        total[name], value = grow_dim(total[name], dim, most), grow_dim(value, dim, most)
                    total[name] = total[name].add_(value) if name in total else value
        context.ranks.sum_tensors_(list(total.values()))
        self._warn_of_empty(context, total["counts"])
        self.add(total)
        self._refit()

    def remove(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Subtract samples from the sums, as if they had never been learned.

        Args:
            batches: inputs as the model takes them, and labels.

        Raises:
            ValueError: more samples of a class than were learned; nothing is changed.
        """
        changes: list[dict[str, Tensor]] = []
        kept, labels, model = self.kept, self.kept_y, self.model
        counts = self.counts.clone()
        with torch.no_grad(), preserve_model(model, training=False):
            for x, y in batches:
                features, y = self._checked(self._features_of(model, x, keep=False)[0]), y.cpu()
                classes = int(y.max()) + 1
                counts = grow_dim(counts, 0, classes)
                counts -= torch.bincount(y, minlength=len(counts)).double()
                if bool((counts < 0).any()):
                    label = int(counts.argmin())
                    raise ValueError(f"class {label} has fewer samples in the head than are to be removed")
                changes.append(self.statistics(features, y, classes))
                if len(kept):
                    apart = torch.cdist(kept.double(), features) > 1e-4 * kept.double().norm(dim=1, keepdim=True)
                    stays = (apart | (labels[:, None] != y[None])).all(1)
                    kept, labels = kept[stays], labels[stays]
        for change in changes:
            self.add(change, -1.0)
        self.sums["features"][self.counts == 0] = 0.0  # without what rounding left
        self.kept, self.kept_y = kept, labels
        self._refit()

    def _keep(self, features: Tensor, y: Tensor) -> None:
        most = self.settings.calibration
        rows = [
            (y == label).nonzero().squeeze(1)[: max(0, most - int((self.kept_y == label).sum()))]
            for label in y.unique().tolist()
        ]
        chosen = torch.cat(rows)
        if len(chosen):
            known = self.kept if len(self.kept) else features.new_zeros(0, features.shape[1]).float()
            self.kept = torch.cat([known, features[chosen].float()])
            self.kept_y = torch.cat([self.kept_y, y[chosen]])

    def _misses(self, y: Tensor) -> bool:
        """Whether a class of these labels has fewer kept samples than it may have."""
        most = self.settings.calibration
        return any(int((self.kept_y == label).sum()) < most for label in y.unique().tolist())

    def _refit(self) -> None:
        self.fitted, self.head = {}, None
        total = float(self.counts.sum())
        if total == 0:
            return
        if int((self.counts > 0).sum()) > 1:
            mean = self.sums["features"].sum(0) / total
            spread = float(self.sums["squares"]) / total - float(mean.square().sum())
            if spread <= 1e-12 * float(self.sums["squares"]) / total:
                warnings.warn(
                    f"the features of all {total:.0f} samples are equal, so that no class can be told from another: "
                    "look at the inputs, or name another layer (answer.layer)",
                    stacklevel=2,
                )
        self.fit()
        self.head = self.solve()  # at a task's end, where an error leaves the learner as it was
        features, y = self.calibration_samples()
        if len(y):
            scores = self.raw_scores_left_out(features, y)[:, self.counts > 0]
            column = (self.counts > 0).cumsum(0)[y] - 1
            self.fitted["inverse_temperature"] = fit_inverse_temperature(scores, column)
        self.diagnostics = {"samples": total, **self.fitted}

    def calibration_samples(self) -> tuple[Tensor, Tensor]:
        """Return features and labels of at most ``FITTED`` samples not alone in their class."""
        rows = (self.counts[self.kept_y] > 1).nonzero().squeeze(1)
        rows = rows if len(rows) <= FITTED else rows[torch.linspace(0, len(rows) - 1, FITTED).long()]
        return self.kept[rows].double(), self.kept_y[rows]

    def _warn_of_empty(self, context: TaskContext, counts: Tensor) -> None:
        met = set((self.counts > 0).nonzero().squeeze(1).tolist()) | set((counts > 0).nonzero().squeeze(1).tolist())
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

    def _checked(self, features: Tensor) -> Tensor:
        found = features.to(CPU).double()
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
        features = self._checked(found)
        scores = features.new_zeros(len(features), max(outputs, len(met)))
        raw = self.raw_scores(features) * self.fitted.get("inverse_temperature", 1.0)
        scores[:] = raw[:, met].amin(1, keepdim=True) - UNMET
        scores[:, met.nonzero().squeeze(1)] = raw[:, met]
        scores = scores.to(x.device)
        return (scores if output is None else output), scores

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
        made = (nn.Sequential(*first, head) if first else head).to(x.device, x.dtype).eval()
        name = next(name for name, module in model.named_modules() if module is layer)
        model.set_submodule(name, made)
        try:
            yield
        finally:
            model.set_submodule(name, layer)

    def load_state_dict(self, state: Any) -> None:
        """Load sums, kept samples and what was fitted; the head is computed when it is needed."""
        super().load_state_dict(state)
        self.head = None
