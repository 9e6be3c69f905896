"""The TMLN step in a recipe: its task boundary takes the Fisher diagonal of the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from tmln.curvature import diagonal_fisher
from tmln.methods import Batch, Closure, Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext, weight_sums
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.steps.tmln_guide import guide_of
from tmln.optim.tmln import TMLN
from tmln.optim.tmln_kfac import TMLNKFAC

FACTORED = {"factors", "labels", "ema", "update_every", "symmetric"}  # settings of geometry kfac alone
ADAM = {"beta1", "beta2"}  # settings of base adam alone


class TMLNSettings(Settings):
    """Of eta * g / (F + lambda + gamma * S-bar)."""

    damping: float = Field(
        0.1,
        gt=0,
        description="damping lambda, added to F: larger means smaller and plainer steps",
        json_schema_extra={"search": {"low": 0.001, "high": 10.0, "log": True}},
    )
    trajectory: float = Field(
        1.0,
        ge=0,
        description="gamma, the weight of S-bar: larger means that weights which mattered on the way move less; 0: off",
        json_schema_extra={"search": {"low": 0.01, "high": 100.0, "log": True}},
    )
    geometry: Literal["fisher", "euclidean", "euclidean-score", "kfac"] = Field(
        "fisher",
        description="where F is used: in step and score, in neither, in the step alone; kfac: Kronecker factors in its "
        "place, the diagonal where there are none",
    )
    form: Literal["scaled", "proximal"] = Field(
        "scaled", description="equation 5; or the appendix's, without eta in front and with lambda = 1/eta"
    )
    eps: float = Field(
        1e-8,
        gt=0,
        description="epsilon, added to the distance that divides a score",
        json_schema_extra={"search": {"low": 1e-08, "high": 0.001, "log": True}},
    )
    momentum: float = Field(
        0.0, ge=0, lt=1, description="momentum mu: the share of the last direction that goes into the next; 0 is off"
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 decay, added to the gradient")
    clip_norm: float | None = Field(
        None, gt=0, description="the gradient's norm is clipped at it; not at all unless given"
    )
    score_fisher: Literal["previous", "current"] = Field(
        "previous", description="the F that normalises a score: of the boundary before (Algorithm 1), or of this one"
    )
    score_max: Literal["global", "tensor"] = Field(
        "global", description="scores are divided by the largest of all weights, or of their own tensor"
    )
    keep_momentum: bool = Field(False, description="carry the momentum over task boundaries")
    match_base_lr: bool = Field(
        False,
        description="multiply lr by lambda, so that task 1 is SGD at lr; form proximal and base adam are that already",
    )
    fisher_refresh_every: int = Field(
        0, ge=0, description="steps between new F of the memory within a task; 0 is at boundaries only"
    )
    factors: Literal["boundary", "running"] = Field(
        "boundary",
        description="kfac: factors of the memory, frozen between boundaries, or running over each batch and its replay",
        json_schema_extra={"later": True},
    )
    labels: Literal["mc", "exact", "empirical"] = Field(
        "mc",
        description="kfac: labels that the factors are taken with: drawn from the model, all there are, the given ones",
        json_schema_extra={"later": True},
    )
    ema: float = Field(
        0.14,
        gt=0,
        le=1,
        description="kfac: share of the new in running factors",
        json_schema_extra={"later": True},
    )
    update_every: int = Field(
        10, ge=1, description="kfac: steps between updates of running factors", json_schema_extra={"later": True}
    )
    symmetric: bool = Field(
        False,
        description="kfac: shield on both sides of the factors, D^-1/2 K^-1 D^-1/2, so that every step descends",
        json_schema_extra={"later": True},
    )

    base: Literal["sgd", "adam"] = Field(
        "sgd",
        description="whose direction is shielded: the gradient, or Adam's, at AdamW's rate",
        json_schema_extra={"later": True},
    )
    beta1: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="adam: what the mean of gradients keeps of itself in a step",
        json_schema_extra={"later": True},
    )
    beta2: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="adam: what the mean of their squares keeps of itself in a step",
        json_schema_extra={"later": True},
    )
    decay: float = Field(
        1.0,
        ge=0,
        le=1,
        description="what is left of S-bar at a boundary, before the new score is added",
        json_schema_extra={"later": True},
    )
    boundary_every: int = Field(
        0,
        ge=0,
        description="steps from one boundary to the next, besides task ends, for streams without tasks: wants a memory "
        "that is filled online, and decay below 1; 0 is task ends only",
        json_schema_extra={"later": True},
    )
    offload: bool = Field(
        False,
        description="anchor, F and S-bar wait in host memory: 8 bytes a weight on an accelerator in place of 20",
        json_schema_extra={"later": True},
    )

    @model_validator(mode="after")
    def _refreshes_what_is_used(self) -> TMLNSettings:
        if self.fisher_refresh_every and self.geometry == "euclidean":
            raise ValueError("geometry 'euclidean' uses no F that could be refreshed; set fisher_refresh_every to 0")
        if self.geometry == "kfac" and self.form == "proximal":
            raise ValueError("geometry 'kfac' has no proximal form, whose lambda follows eta; set form to 'scaled'")
        if self.base == "adam" and (self.momentum or self.geometry == "kfac"):
            other = "geometry 'kfac'" if self.geometry == "kfac" else f"momentum {self.momentum}"
            raise ValueError(f"base 'adam' has a direction and a momentum of its own, and does not go with {other}")
        return self


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
    guide = guide_of(TMLNSettings.model_validate({}))

    def __init__(
        self, settings: TMLNSettings, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None
    ) -> None:
        super().__init__(settings, model, lr, seed, memory)
        if settings.fisher_refresh_every and memory is None:
            raise ValueError(
                f"tmln.fisher_refresh_every = {settings.fisher_refresh_every} takes F of a memory, and there is none: "
                "choose a replay such as 'er', or set it to 0"
            )
        if settings.boundary_every and settings.geometry != "euclidean" and memory is None:
            raise ValueError(
                f"tmln.boundary_every = {settings.boundary_every} takes F of a memory, and there is none: choose a "
                "replay such as 'er' with replay.fill=online, or set it to 0"
            )
        self.needs_boundary = not settings.boundary_every
        for names, setting, value, what in (
            (FACTORED, "geometry", "kfac", "Kronecker factors"),
            (ADAM, "base", "adam", "Adam's means"),
        ):
            chosen = getattr(settings, setting)
            for name in sorted(names & settings.model_fields_set if chosen != value else ()):
                if getattr(settings, name) != type(settings).model_fields[name].default:
                    raise ValueError(
                        f"tmln.{name} = {getattr(settings, name)!r} is about {what}, and {setting} {chosen!r} has "
                        f"none: set step.{setting} to {value!r}, or leave it out"
                    )
        if settings.match_base_lr and not self._at_lr:
            lr *= settings.damping
        options = settings.model_dump(
            exclude={"match_base_lr", "fisher_refresh_every", "boundary_every", *FACTORED, *ADAM}
        )
        options["betas"] = (settings.beta1, settings.beta2)
        if settings.geometry == "kfac":
            options = {name: value for name, value in options.items() if name not in ("geometry", "form")}
            self.optimizer = TMLNKFAC(model, lr, **options, **settings.model_dump(include=FACTORED), seed=seed)
        else:
            self.optimizer = TMLN(model.named_parameters(), lr, **options)
        self.steps = 0
        self.crossed = 0  # steps at the last boundary

    def begin(self, context: TaskContext) -> None:
        measured = self.settings.geometry == "kfac" and self.settings.factors == "boundary"
        if context.ranks.size > 1 and measured and self.settings.labels == "mc":
            raise ValueError(
                "tmln.labels = 'mc' draws labels for factors at boundaries, and several ranks draw others than one "
                "process does: set step.labels to 'exact' or 'empirical', or step.factors to 'running'"
            )

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        return guide_of(settings)

    @classmethod
    def supports_fsdp_at(cls, settings: Any) -> bool:
        return bool(settings.geometry != "kfac")  # whose factors are of whole layers

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        found = [*weight_sums("anchor", "sensitivity", "raw_path"), MemoryTerm("preconditioner", "N", derived=True)]
        found += weight_sums("fisher") if settings.geometry != "euclidean" else []
        found += weight_sums("momentum_buffer") if settings.momentum else []
        found += (
            [*weight_sums("exp_avg", "exp_avg_sq"), MemoryTerm("step", "counts")] if settings.base == "adam" else []
        )
        if settings.geometry == "kfac":
            found += [MemoryTerm("kfac.factors", "K"), MemoryTerm("kfac.inverses", "K", derived=True)]
        found += weight_sums("path") if settings.fisher_refresh_every else []  # what was walked under the old metric
        return found + (weight_sums("way") if conditions.gradient_modified or conditions.half else [])

    @property
    def _at_lr(self) -> bool:
        """The first task is learned at lr, not at lr/lambda."""
        return self.settings.form == "proximal" or self.settings.base == "adam"

    @property
    def effective_lr(self) -> float:
        return super().effective_lr / (1.0 if self._at_lr else self.settings.damping)

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        # Before the step that follows: by then all that moves the weights in the last one has done so.
        every = self.settings.boundary_every
        if every and self.steps % every == 0 and self.steps > self.crossed:
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
            fisher = diagonal_fisher(context.model, context.rank_batches(self.memory), progress=False)
            self.optimizer.refresh(fisher, *self._batches(context))

    def _batches(self, context: TaskContext) -> list[Iterator[tuple[Tensor, Tensor]]]:
        """What factors that are measured at boundaries are measured on, if they are."""
        measured = self.settings.geometry == "kfac" and self.settings.factors == "boundary"
        return [context.rank_batches(self.memory)] if measured else []

    def after_update(self) -> None:
        self.optimizer.after_update()

    def end(self, context: TaskContext) -> None:
        fisher = None
        if self.settings.geometry != "euclidean":  # without a memory the metric is that of the task just learned
            if self.settings.boundary_every and not self.memory:
                raise ValueError(
                    f"a boundary is due (tmln.boundary_every = {self.settings.boundary_every}), and the memory is "
                    "empty: set replay.fill=online, so that it has the samples seen so far"
                )
            fisher = diagonal_fisher(context.model, context.rank_batches(self.memory), progress=False)
        found = self.optimizer.consolidate(fisher, *self._batches(context))
        self.crossed = self.steps
        self.diagnostics = {
            "active": found.active,
            "head share": sum(found.mass.get(p, 0.0) for p in last_layer(context.model)),
            "slow-down, median": found.slowdown_median,
            "slow-down, 95th percentile": found.slowdown_p95,
        }

    def state_dict(self) -> dict[str, Any]:
        more = {"crossed": self.crossed} if self.settings.boundary_every else {}  # else nobody asks
        return {**super().state_dict(), **more}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.crossed = state.get("crossed", 0)


def last_layer(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the module that comes last: in a classifier, its head."""
    owners = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    return list(owners[-1].parameters(recurse=False)) if owners else []
