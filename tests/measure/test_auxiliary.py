"""What a method holds: the formula of every part against the tensors that are found in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.measure.auxiliary import DERIVED, FORMULAS, Term, as_text, held, saved_bytes, terms_of, units_of
from tmln.parts import Settings
from tmln.recipes import FAMILIES, RECIPES, Choice, Recipe
from tmln.streams.samples import Samples

CLASSES, BATCH = 3, 8
DATA = Samples.of(torch.randint(0, 256, (24, 1, 5, 5), dtype=torch.uint8), torch.arange(24) % CLASSES)


class Pause(Exception):
    pass


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES))


def in_the_second_task(recipe: Recipe) -> Learner:
    learner = Learner(network(), recipe, lr=1e-3, batch_size=BATCH)
    learner.learn(DATA)

    def stop(epoch: int, number: int, loss: float) -> None:
        if number == 1:
            raise Pause

    with pytest.raises(Pause):
        learner.learn(DATA, atomic=False, on_step=stop)
    return learner


def by_name(recipe: Recipe) -> dict[str, int]:
    units = units_of(network(), DATA, CLASSES)
    found: dict[str, int] = {}
    for term in terms_of(recipe) or []:
        found[term.name] = found.get(term.name, 0) + term.times * units[term.unit]
    return found


def recipe(**choices: Choice) -> Recipe:
    return Recipe(**choices)  # type: ignore[arg-type]


CASES = {
    **{f"{family} {name}": recipe(**{family: Choice(name)}) for family, table in FAMILIES.items() for name in table},
    **{name: RECIPES[name] for name in RECIPES if name != "joint"},
    "tmln with momentum": recipe(step=Choice("tmln", {"momentum": 0.9})),
    "tmln refreshed": recipe(replay=Choice("er"), step=Choice("tmln", {"fisher_refresh_every": 2})),
    "a-gem around tmln": recipe(step=Choice("a-gem", {"inner": "tmln", "capacity": 7})),
    "three parts at once": recipe(replay=Choice("er"), penalty=Choice("ewc++"), step=Choice("tmln")),
}


@pytest.mark.filterwarnings("ignore:.*overshoot")
@pytest.mark.parametrize("case", CASES)
def test_the_formula_is_what_is_found(case: str) -> None:
    assert held(in_the_second_task(CASES[case])) == by_name(CASES[case])


def test_every_part_has_a_formula() -> None:
    assert set(FORMULAS) == {(family, name) for family, table in FAMILIES.items() for name in table}


def test_units_by_hand() -> None:
    assert units_of(network(), DATA, CLASSES) == {
        "N": 4 * (36 + 4 + 4 + 4 + 36 * 3 + 3),
        "K": 4 * (10**2 + 4**2 + 37**2 + 3**2),
        "model": 4 * (159 + 4 + 4) + 8,
        "samples": 25 + 8,
        "logits": 4 * 3,
    }


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("naive", "N"),
        ("ewc", "2N"),
        ("ewc++", "3N"),
        ("rwalk", "7N + 500 samples"),
        ("tmln", "5N + 500 samples"),
        ("tmln-euclidean", "4N + 500 samples"),
        ("ocar", "2K + 500 samples"),
        ("der++", "N + 500 samples + 500 logits"),
        ("lwf", "N + 1 model"),
    ],
)
def test_formulas_as_text(method: str, text: str) -> None:
    assert as_text(terms_of(RECIPES[method]) or []) == text


def test_text_of_nothing() -> None:
    assert as_text([]) == "0"
    assert as_text([Term("a", "N", 2), Term("b", "N")]) == "3N"


def test_what_is_derived_is_in_no_checkpoint() -> None:
    learner = in_the_second_task(RECIPES["tmln"])
    found = held(learner)
    derived = sum(size for name, size in found.items() if name.endswith(DERIVED))
    assert derived == units_of(network(), DATA, CLASSES)["N"]
    kept = found["replay.memory"] * len(DATA) // 500  # a checkpoint holds the part that is filled
    generator = len(torch.Generator().get_state())
    assert saved_bytes(learner) == sum(found.values()) - derived - found["replay.memory"] + kept + generator


def test_a_part_without_a_formula_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(FAMILIES["penalty"]["none"]):  # type: ignore[misc]
        name = "other"
        Settings: Any = Settings

    monkeypatch.setitem(FAMILIES["penalty"], "other", Other)
    assert terms_of(recipe(penalty=Choice("other"))) is None
