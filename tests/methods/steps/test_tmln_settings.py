"""What is told of the TMLN step follows its settings."""

from __future__ import annotations

from typing import Any

import pytest

from tmln.methods import Guide
from tmln.methods.steps.tmln import TMLNStep
from tmln.methods.steps.tmln_settings import TMLNSettings

SCORE = r"s = \frac{\mathrm{relu}(\omega)}{F (\theta - \theta_{\text{prev}})^2 / 2 + \epsilon}"
PLAIN = r"s = \frac{\mathrm{relu}(\omega)}{(\theta - \theta_{\text{prev}})^2 + \epsilon}"
SUM = r"\bar S \leftarrow \bar S + \frac{s}{\max s}"
MOVE = r"\theta \leftarrow \theta - "


def told(**settings: Any) -> Guide:
    found = TMLNStep.guide_for(TMLNSettings.model_validate(settings))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, [MOVE + r"\eta \, \frac{g}{F + \lambda + \gamma \bar S}", SCORE, SUM]),
        ({"trajectory": 0.0}, [MOVE + r"\eta \, \frac{g}{F + \lambda}"]),
        ({"geometry": "euclidean"}, [MOVE + r"\eta \, \frac{g}{\lambda + \gamma \bar S}", PLAIN, SUM]),
        ({"geometry": "euclidean-score"}, [MOVE + r"\eta \, \frac{g}{F + \lambda + \gamma \bar S}", PLAIN, SUM]),
        ({"geometry": "euclidean", "trajectory": 0.0}, [MOVE + r"\eta \, \frac{g}{\lambda}"]),
        ({"form": "proximal"}, [MOVE + r"\frac{g}{F + 1/\eta + \gamma \bar S}", SCORE, SUM]),
        ({"decay": 0.5, "geometry": "euclidean"}, [
            MOVE + r"\eta \, \frac{g}{\lambda + \gamma \bar S}", PLAIN,
            r"\bar S \leftarrow \text{decay} \, \bar S + \frac{s}{\max s}",
        ]),
        ({"geometry": "kfac"}, [
            MOVE + r"\frac{\eta}{1 + \gamma \bar S / \lambda} \, (G + \sqrt{\lambda}/\pi)^{-1} \, g \, "
            r"(A + \pi \sqrt{\lambda})^{-1}", SCORE, SUM,
        ]),
        ({"geometry": "kfac", "symmetric": True}, [
            MOVE + r"\eta \, D^{-1/2} (G + \sqrt{\lambda}/\pi)^{-1} \, (D^{-1/2} g) \, (A + \pi \sqrt{\lambda})^{-1}",
            r"D = 1 + \gamma \bar S / \lambda", SCORE, SUM,
        ]),
        ({"base": "adam", "trajectory": 0.0}, [
            MOVE + r"\eta \, a \, \frac{\lambda}{F + \lambda}", r"a = \text{Adam's direction}",
        ]),
    ],
)  # fmt: skip
def test_the_rule_has_what_is_switched_on(settings: dict[str, Any], rules: list[str]) -> None:
    assert told(**settings).equation.split(r", \quad ") == rules


@pytest.mark.parametrize(
    ("settings", "cost"),
    [
        ({}, "A step costs what SGD's does; at a boundary a Fisher pass"),
        ({"geometry": "euclidean"}, "A step costs what SGD's does; a boundary takes no Fisher pass."),
        ({"geometry": "kfac"}, "A step costs what SGD's does; Kronecker factors of every layer"),
        ({"geometry": "kfac", "factors": "running"}, "A step takes 1.2 to 1.5 times as long"),
        ({"base": "adam"}, "Two sums for every weight beyond those of `tmln`"),
    ],
)
def test_the_cost_is_that_of_the_settings(settings: dict[str, Any], cost: str) -> None:
    assert told(**settings).cost.startswith(cost)


def test_a_control_names_what_it_lacks() -> None:
    assert "what S-bar does" in told(trajectory=0.0).use
    assert "what F does" in told(geometry="euclidean").use
    assert "what S-bar and F do" in told(geometry="euclidean", trajectory=0.0).use


def test_what_is_not_the_papers_is_called_ours() -> None:
    ours = [{"geometry": "kfac"}, {"base": "adam"}]
    assert all(told(**one).origin.endswith("it is ours.") for one in ours)
    assert TMLNStep.guide == told()
