"""What is told of the TMLN step at any of its settings: its rule without what they switch off, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tmln.methods import Guide

if TYPE_CHECKING:
    from tmln.methods.steps.tmln import TMLNSettings

PAPER = "Aguilar et al. 2026, section 3 and Algorithm 1"
NATURAL = r"(G + \sqrt{\lambda}/\pi)^{-1} \, g \, (A + \pi \sqrt{\lambda})^{-1}"  # as OCAR has it


def step_rule(settings: TMLNSettings) -> str:
    """The move, in LaTeX: eta*g / (F + lambda + gamma*S-bar), or what the settings make of it."""
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


def shield_rule(settings: TMLNSettings) -> str:
    """S-bar at a boundary, in LaTeX; the score has F unless the settings leave it out."""
    moved = r"(\theta - \theta_{\text{prev}})^2"
    distance = f"F {moved} / 2" if settings.geometry in ("fisher", "kfac") else moved
    kept = "" if settings.decay == 1 else r"\text{decay} \, "
    score = rf"s = \frac{{\mathrm{{relu}}(\omega)}}{{{distance} + \epsilon}}"
    return rf"{score}, \quad \bar S \leftarrow {kept}\bar S + \frac{{s}}{{\max s}}"


def origin_of(settings: TMLNSettings) -> str:
    """The paper; and what is not in it."""
    if settings.geometry == "kfac":
        return f"{PAPER}. On Kronecker factors, those of OCAR (Urettini and Carta 2025), it is ours."
    if settings.base == "adam":
        return f"{PAPER}. On Adam's direction (Kingma and Ba 2015) it is ours."
    return f"{PAPER}."


def cost_of(settings: TMLNSettings) -> str:
    """Of a step, as measured in docs/speed.md, and of a boundary."""
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


def advice_of(settings: TMLNSettings) -> tuple[str, str]:
    """When to take it, and when not."""
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
        "Under replay, in a loop of your own or with any part here, where weights that mattered shall move less.",
        "Alone, under one head that new classes come to. Look at `protection()`: a shield that slows nothing is SGD.",
    )


def guide_of(settings: TMLNSettings) -> Guide:
    """All of it."""
    rules = [step_rule(settings), *([shield_rule(settings)] if settings.trajectory else [])]
    use, avoid = advice_of(settings)
    return Guide(r", \quad ".join(rules), origin_of(settings), cost_of(settings), use, avoid)
