"""Settings of the TMLN step, and its documentation at any of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tmln.methods import Guide, Settings

PAPER = "Aguilar et al. 2026, section 3 and Algorithm 1"
NATURAL = r"(G + \sqrt{\lambda}/\pi)^{-1} \, g \, (A + \pi \sqrt{\lambda})^{-1}"  # as OCAR has it


class TMLNSettings(Settings):
    """Settings of theta -= eta * g / (F + lambda + gamma * S-bar)."""

    damping: float = Field(
        0.1,
        gt=0,
        description="damping lambda, added to F: larger means smaller steps, closer to SGD's",
        json_schema_extra={"search": {"low": 0.001, "high": 10.0, "log": True}},
    )
    trajectory: float = Field(
        1.0,
        ge=0,
        description="gamma, the weight of S-bar: larger values hold weights that reduced the loss on the path; 0: off",
        json_schema_extra={"search": {"low": 0.01, "high": 100.0, "log": True}},
    )
    geometry: Literal["fisher", "euclidean", "euclidean-score", "kfac"] = Field(
        "fisher",
        description="where F is used: in step and score, in neither, in the step alone; kfac: Kronecker factors "
        "instead, the diagonal for layers without them",
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
        0.0,
        ge=0,
        lt=1,
        description="momentum mu; 0 is off",
        json_schema_extra={"search": {"low": 0.0, "high": 0.99}},
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 decay, added to the gradient")
    clip_norm: float | None = Field(
        None, gt=0, description="clip the gradient's norm at this value; no clipping unless given"
    )
    score_fisher: Literal["previous", "current"] = Field(
        "previous", description="the F that normalises a score: of the previous boundary (Algorithm 1), or of this one"
    )
    score_max: Literal["global", "tensor"] = Field(
        "global", description="scores are divided by the largest of all weights, or of their own tensor"
    )
    keep_momentum: bool = Field(False, description="carry the momentum over task boundaries")
    match_base_lr: bool = Field(
        False,
        description="multiply lr by lambda, so that task 1 is SGD at lr; no effect with form proximal or base adam",
    )
    fisher_refresh_every: int = Field(
        0, ge=0, description="steps between updates of F on the memory within a task; 0: at boundaries only"
    )
    factors: Literal["boundary", "running"] = Field(
        "boundary",
        description="kfac: factors on the memory, fixed between boundaries, or running over each batch with its replay",
        json_schema_extra={"later": True},
    )
    labels: Literal["mc", "exact", "empirical"] = Field(
        "mc",
        description="kfac: labels for the factors: drawn from the model, all classes, or the given ones",
        json_schema_extra={"later": True},
    )
    ema: float = Field(
        0.14,
        gt=0,
        le=1,
        description="kfac: share of new factors in the running mean",
        json_schema_extra={"later": True},
    )
    update_every: int = Field(
        10, ge=1, description="kfac: steps between updates of running factors", json_schema_extra={"later": True}
    )
    symmetric: bool = Field(
        False,
        description="kfac: apply the shield on both sides, D^-1/2 K^-1 D^-1/2, so that every step descends",
        json_schema_extra={"later": True},
    )
    base: Literal["sgd", "adam"] = Field(
        "sgd",
        description="the direction to scale: the gradient, or Adam's, at AdamW's learning rate",
        json_schema_extra={"later": True},
    )
    beta1: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="adam: decay rate of the mean of gradients",
        json_schema_extra={"later": True},
    )
    beta2: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="adam: decay rate of the mean of squared gradients",
        json_schema_extra={"later": True},
    )
    decay: float = Field(
        1.0,
        ge=0,
        le=1,
        description="factor of S-bar at a boundary, before the new score is added",
        json_schema_extra={"later": True},
    )
    boundary_every: int = Field(
        0,
        ge=0,
        description="steps between boundaries, besides task ends, for streams without tasks: needs a memory that is "
        "filled online, and decay below 1; 0: task ends only",
        json_schema_extra={"later": True},
    )
    offload: bool = Field(
        False,
        description="keep anchor, F and S-bar in host memory: 8 bytes a weight on the accelerator instead of 20",
        json_schema_extra={"later": True},
    )
    compact: bool = Field(
        False,
        description="keep F and S-bar in bfloat16 and compute P in every step: 12 bytes a weight instead of 20",
        json_schema_extra={"later": True},
    )

    consolidate_at_start: bool = Field(
        False,
        description="before the first task take F of the features at the weights given, on a sample of the task's "
        "inputs, which is added to F at every boundary: pre-training counts as a task",
        json_schema_extra={"later": True},
    )

    @model_validator(mode="after")
    def _check_combinations(self) -> TMLNSettings:
        if self.fisher_refresh_every and self.geometry == "euclidean":
            raise ValueError("geometry 'euclidean' uses no F that could be refreshed; set fisher_refresh_every to 0")
        if self.consolidate_at_start and self.geometry in ("euclidean", "kfac"):
            uses = "no F" if self.geometry == "euclidean" else "Kronecker factors in place of F"
            raise ValueError(f"geometry {self.geometry!r} uses {uses}; set consolidate_at_start to false")
        if self.geometry == "kfac" and self.form == "proximal":
            raise ValueError("geometry 'kfac' has no proximal form, whose lambda follows eta; set form to 'scaled'")
        if self.base == "adam" and (self.momentum or self.geometry == "kfac"):
            other = "geometry 'kfac'" if self.geometry == "kfac" else f"momentum {self.momentum}"
            raise ValueError(f"base 'adam' has a direction and a momentum of its own, and does not go with {other}")
        return self


def format_step_rule(settings: TMLNSettings) -> str:
    """Return the update in LaTeX, without the terms that the settings switch off."""
    shield = r" + \gamma \bar S" if settings.trajectory else ""
    if settings.geometry == "kfac":
        rate = r"\frac{\eta}{1 + \gamma \bar S / \lambda}" if shield else r"\eta"
        if settings.symmetric and shield:
            factors = NATURAL.replace(" g ", r" (D^{-1/2} g) ")
            return rf"\theta \leftarrow \theta - \eta \, D^{{-1/2}} {factors}, \quad D = 1 + \gamma \bar S / \lambda"
        return rf"\theta \leftarrow \theta - {rate} \, {NATURAL}"
    rate, damping = ("", r"1/\eta") if settings.form == "proximal" else (r"\eta \, ", r"\lambda")
    metric = damping + shield if settings.geometry == "euclidean" else f"F + {damping}{shield}"
    if settings.base == "adam":
        move = rf"\theta \leftarrow \theta - \eta \, a \, \frac{{{damping}}}{{{metric}}}"
        return rf"{move}, \quad a = \text{{Adam's direction}}"
    return rf"\theta \leftarrow \theta - {rate}\frac{{g}}{{{metric}}}"


def format_shield_rule(settings: TMLNSettings) -> str:
    """Return the boundary's rule for S-bar in LaTeX."""
    moved = r"(\theta - \theta_{\text{prev}})^2"
    distance = f"F {moved} / 2" if settings.geometry in ("fisher", "kfac") else moved
    kept = "" if settings.decay == 1 else r"\text{decay} \, "
    score = rf"s = \frac{{\mathrm{{relu}}(\omega)}}{{{distance} + \epsilon}}"
    return rf"{score}, \quad \bar S \leftarrow {kept}\bar S + \frac{{s}}{{\max s}}"


def describe_origin(settings: TMLNSettings) -> str:
    """Return the reference, and what goes beyond it."""
    if settings.geometry == "kfac":
        return f"{PAPER}. On Kronecker factors, those of OCAR (Urettini and Carta 2025), it is ours."
    if settings.base == "adam":
        return f"{PAPER}. On Adam's direction (Kingma and Ba 2015) it is ours."
    return f"{PAPER}."


def describe_cost(settings: TMLNSettings) -> str:
    """Return the cost of a step (measured in docs/speed.md) and of a boundary."""
    passed = "at a boundary a Fisher pass over the memory"
    if settings.geometry == "euclidean":
        return "A step costs what SGD's does; a boundary takes no Fisher pass."
    if settings.geometry == "kfac" and settings.factors == "running":
        slower = "A step takes 1.2 to 1.5 times as long as SGD's on as many samples (docs/speed.md)"
        return f"{slower}; Kronecker factors of every layer; {passed}."
    if settings.geometry == "kfac":
        return f"A step costs what SGD's does; Kronecker factors of every layer; {passed}, and one for the factors."
    if settings.base == "adam":
        return f"Two sums for every weight beyond those of `tmln`; {passed}."
    return f"A step costs what SGD's does; {passed}."


def describe_use(settings: TMLNSettings) -> tuple[str, str]:
    """Return when to use it, and when not."""
    euclidean = settings.geometry == "euclidean"
    if not settings.trajectory or euclidean:
        lacks = ("F does" if settings.trajectory else "S-bar and F do") if euclidean else "S-bar does"
        return (
            f"As a control: what `tmln` has beyond it is what {lacks}.",
            "As TMLN itself, whose shield is F and S-bar together.",
        )
    if settings.geometry == "kfac":
        return (
            "Under replay, where layers are of moderate width: on small real images its means are above those of the "
            "diagonal (docs/results.md).",
            "For wide layers, whose factors are dear; for layers without factors, as grouped convolutions, which take "
            "the step by the diagonal.",
        )
    if settings.base == "adam":
        return (
            "Under replay, for fine-tuning of transformers, at a rate of 0.001 or less.",
            "At SGD's rates, 0.01 and more: every weight moves by about the rate.",
        )
    return (
        "Under replay, in a loop of your own or with any other component, where important weights must be held.",
        "Alone, where new classes arrive at one head. Check `protection()`: without a slow-down it is SGD.",
    )


def make_guide(settings: TMLNSettings) -> Guide:
    """Return the documentation of the step at these settings."""
    rules = [format_step_rule(settings), *([format_shield_rule(settings)] if settings.trajectory else [])]
    use, avoid = describe_use(settings)
    return Guide(r", \quad ".join(rules), describe_origin(settings), describe_cost(settings), use, avoid)
