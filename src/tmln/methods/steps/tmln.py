"""The TMLN step (Aguilar et al. 2026); its boundaries measure F on the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from tmln.curvature import diagonal_fisher
from tmln.methods import (
    Batch,
    Closure,
    Guide,
    MemoryConditions,
    MemoryTerm,
    Step,
    TaskContext,
    copy_state,
    move_to_model,
    weight_sums,
)
from tmln.methods.fine_tuning import find_fine_tuning
from tmln.methods.steps.feature_fisher import feature_fisher
from tmln.methods.steps.tmln_settings import TMLNSettings, make_guide
from tmln.optim.tmln import TMLN
from tmln.optim.tmln_kfac import TMLNKFAC

KFAC_ONLY = {"factors", "labels", "ema", "update_every", "symmetric"}  # settings of geometry kfac
ADAM_ONLY = {"beta1", "beta2"}  # settings of base adam
STEP_ONLY = {"match_base_lr", "fisher_refresh_every", "boundary_every", "consolidate_at_start"}  # not the optimizer's


class TMLNStep(Step[TMLNSettings]):
    """theta <- theta - eta*g / (F + lambda + gamma*S-bar)."""

    name = "tmln"
    supports_fsdp = True
    Settings = TMLNSettings
    state_names = ("optimizer", "steps")
    needs_boundary = True
    tracks_path = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {"damping": 1.0, "trajectory": 0.0, "geometry": "euclidean"}
    changed_settings: ClassVar[Mapping[str, Any]] = {"trajectory": 50.0}
    optimizer: TMLN
    guide = make_guide(TMLNSettings.model_validate({}))

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> TMLN:
        settings = self.settings
        self._check_settings()
        self.steps = self.boundary_step = 0  # steps so far, and at the last boundary
        self.start_fisher: dict[str, Tensor] = {}  # F of the features before the first task, by name
        self.needs_boundary = not settings.boundary_every
        if settings.match_base_lr and not self._starts_at_lr:
            lr *= settings.damping
        options = settings.model_dump(exclude=STEP_ONLY | KFAC_ONLY | ADAM_ONLY)
        options["betas"] = (settings.beta1, settings.beta2)
        if settings.geometry == "kfac":
            options = {name: value for name, value in options.items() if name not in ("geometry", "form")}
            return TMLNKFAC(model, lr, **options, **settings.model_dump(include=KFAC_ONLY), seed=seed)
        return TMLN(model.named_parameters(), lr, **options)

    def _check_settings(self) -> None:
        settings = self.settings
        if settings.fisher_refresh_every and self.memory is None:
            raise ValueError(
                f"step.fisher_refresh_every = {settings.fisher_refresh_every} takes F of a memory, and there is none: "
                "choose a replay such as 'er', or set it to 0"
            )
        if settings.boundary_every and settings.geometry != "euclidean" and self.memory is None:
            raise ValueError(
                f"step.boundary_every = {settings.boundary_every} takes F of a memory, and there is none: choose a "
                "replay such as 'er' with replay.fill=online, or set it to 0"
            )
        for names, setting, value, what in (
            (KFAC_ONLY, "geometry", "kfac", "Kronecker factors"),
            (ADAM_ONLY, "base", "adam", "Adam's means"),
        ):
            chosen = getattr(settings, setting)
            for name in sorted(names & settings.model_fields_set if chosen != value else ()):
                if getattr(settings, name) != type(settings).model_fields[name].default:
                    raise ValueError(
                        f"step.{name} = {getattr(settings, name)!r} is about {what}, and {setting} {chosen!r} has "
                        f"none: set step.{setting} to {value!r}, or leave it out"
                    )

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        return make_guide(settings)

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        return bool(settings.geometry != "kfac")  # whose factors are of whole layers

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        names = ["anchor", "raw_path"]
        metric = ["sensitivity", "fisher"] if settings.geometry != "euclidean" else ["sensitivity"]
        names += ["momentum_buffer"] if settings.momentum else []
        names += ["exp_avg", "exp_avg_sq"] if settings.base == "adam" else []
        names += ["start_fisher"] if settings.consolidate_at_start else []
        names += ["path"] if settings.fisher_refresh_every else []  # the path under the previous F
        names += ["way"] if conditions.trains and (conditions.gradient_modified or conditions.half) else []
        found = weight_sums(*names)
        found += [MemoryTerm(name, "H" if settings.compact else "N") for name in metric]
        found += [] if settings.compact else [MemoryTerm("preconditioner", "N", derived=True)]
        found += [MemoryTerm("step", "counts")] if settings.base == "adam" else []
        if settings.geometry == "kfac":
            found += [MemoryTerm("kfac.factors", "K"), MemoryTerm("kfac.inverses", "K", derived=True)]
        return found

    @property
    def _first_weight(self) -> Tensor:
        weight: Tensor = self.optimizer.param_groups[0]["params"][0]
        return weight

    @property
    def _starts_at_lr(self) -> bool:
        """Whether the first task is learned at lr, not at lr/lambda."""
        return self.settings.form == "proximal" or self.settings.base == "adam"

    @property
    def effective_lr(self) -> float:
        return super().effective_lr / (1.0 if self._starts_at_lr else self.settings.damping)

    @classmethod
    def lr_factor(cls, settings: Any) -> float:
        starts_at_lr = settings.form == "proximal" or settings.base == "adam" or settings.match_base_lr
        return super().lr_factor(settings) / (1.0 if starts_at_lr else float(settings.damping))

    @property
    def _factors_at_boundary(self) -> bool:
        return self.settings.geometry == "kfac" and self.settings.factors == "boundary"

    def _factor_batches(self, context: TaskContext) -> list[Iterator[tuple[Tensor, Tensor]]]:
        """Return the batches for Kronecker factors, if they are measured at boundaries."""
        return [context.rank_batches(self.memory)] if self._factors_at_boundary else []

    def begin(self, context: TaskContext) -> None:
        if context.ranks.size > 1 and self._factors_at_boundary and self.settings.labels == "mc":
            raise ValueError(
                "step.labels = 'mc' draws labels for factors at boundaries, and several ranks draw others than one "
                "process does: set step.labels to 'exact' or 'empirical', or step.factors to 'running'"
            )
        if self.settings.consolidate_at_start and not self.steps:
            found = find_fine_tuning(context.model)
            fisher = feature_fisher(context, None if found is None else found[1].head)
            if fisher:
                self.optimizer.refresh(fisher)
            named = context.model.named_parameters()
            self.start_fisher = {name: fisher[p] for name, p in named if p in fisher and bool(fisher[p].any())}

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        # A boundary comes before the next step: by then all updates of the last one are done.
        every = self.settings.boundary_every
        if every and self.steps % every == 0 and self.steps > self.boundary_step:
            self.end(context)
        if isinstance(self.optimizer, TMLNKFAC):
            mine = batch.rank_share(context.ranks)
            self.optimizer.observe(mine.x, mine.y, replay=len(mine.y) - mine.current)

    def after_backward(self) -> None:
        self.optimizer.after_backward()

    def step(self, closure: Closure, context: TaskContext) -> None:
        self.optimizer.step(closure)
        self.steps += 1
        every = self.settings.fisher_refresh_every
        if every and self.steps % every == 0 and self.memory:
            self.optimizer.refresh(self._measure_fisher(context), *self._factor_batches(context))

    def after_update(self) -> None:
        self.optimizer.after_update()

    def _measure_fisher(self, context: TaskContext) -> Mapping[Any, Tensor]:
        """Return F of the memory or, without one, of the task; with that of the start, if kept."""
        fisher = diagonal_fisher(context.model, context.rank_batches(self.memory), progress=False)
        if not self.start_fisher:
            return fisher
        return {
            p: fisher[name] + self.start_fisher[name] if name in self.start_fisher else fisher[name]
            for name, p in context.model.named_parameters()
            if name in fisher
        }

    def end(self, context: TaskContext) -> None:
        fisher = None
        if self.settings.geometry != "euclidean":  # without a memory F is of the task just learned
            if self.settings.boundary_every and not self.memory:
                raise ValueError(
                    f"a boundary is due (tmln.boundary_every = {self.settings.boundary_every}), and the memory is "
                    "empty: set replay.fill=online, so that it has the samples seen so far"
                )
            fisher = self._measure_fisher(context)
        found = self.optimizer.consolidate(fisher, *self._factor_batches(context))
        self.boundary_step = self.steps
        self.diagnostics = {
            "active": found.active,
            "head share": sum(found.mass.get(p, 0.0) for p in find_last_layer(context.model)),
            "slow-down, median": found.slowdown_median,
            "slow-down, 95th percentile": found.slowdown_p95,
        }

    def state_dict(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"crossed": self.boundary_step} if self.settings.boundary_every else {}
        if self.settings.consolidate_at_start:
            extra["start_fisher"] = copy_state(self.start_fisher)
        return {**super().state_dict(), **extra}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.boundary_step = state.get("crossed", 0)
        found = copy_state(state.get("start_fisher", {}))
        self.start_fisher = {name: move_to_model(self._first_weight, value) for name, value in found.items()}


def find_last_layer(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the last module that has any: a classifier's head."""
    owners = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    return list(owners[-1].parameters(recurse=False)) if owners else []
