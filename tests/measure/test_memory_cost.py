"""What a method holds: the formula of every part against the tensors that are found in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.measure.memory_cost import count_bytes, count_saved_bytes, find_held_bytes, format_terms, measure_units
from tmln.methods import MemoryTerm, Penalty, Settings, TaskContext
from tmln.methods.recipes import FAMILIES, RECIPES, ComponentSpec, Recipe
from tmln.streams.samples import Samples

CLASSES, BATCH = 3, 10
NUMBER = 30  # ten of each class: as many as answers keep
DATA = Samples.of(torch.randint(0, 256, (NUMBER, 1, 5, 5), dtype=torch.uint8), torch.arange(NUMBER) % CLASSES)


class Pause(Exception):
    pass


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES))


def in_the_second_task(recipe: Recipe, model: nn.Module | None = None) -> Learner:
    learner = Learner(network() if model is None else model, recipe, lr=1e-3, batch_size=BATCH)
    learner.learn(DATA)
    learner.answer.prepare()  # as a prediction does

    def stop(epoch: int, number: int, loss: float) -> None:
        if number == 1:
            raise Pause

    def stop_at_begin(context: TaskContext) -> None:
        raise Pause

    if not learner.step.trains_at(learner.step.settings, 1):  # without steps the task has no other middle
        learner.answer.begin = stop_at_begin  # type: ignore[method-assign]
    with pytest.raises(Pause):
        learner.learn(DATA, atomic=False, on_step=stop)
    return learner


def by_name(recipe: Recipe, model: nn.Module | None = None) -> dict[str, int]:
    layer = recipe.resolve_settings("answer").get("layer")
    width = {None: None, "0": 25}[layer]
    units = measure_units(network() if model is None else model, DATA, CLASSES, width)
    found: dict[str, int] = {}
    half = model is not None and model[0].weight.dtype is torch.bfloat16  # type: ignore[index]
    for term in recipe.memory_terms(half=half) or []:
        found[term.name] = found.get(term.name, 0) + term.times * units[term.unit]
    return found


def recipe(**choices: ComponentSpec) -> Recipe:
    return Recipe(components=choices)


def alone(family: str, name: str) -> Recipe:
    """With nothing but what it cannot do without."""
    return recipe(
        **{other: ComponentSpec(part) for other, part in FAMILIES[family][name].required_components.items()},
        **{family: ComponentSpec(name)},
    )


CASES = {
    **{f"{family} {name}": alone(family, name) for family, table in FAMILIES.items() for name in table},
    **{name: RECIPES[name] for name in RECIPES if name != "joint"},
    "tmln with momentum": recipe(step=ComponentSpec("tmln", {"momentum": 0.9})),
    "tmln, compact": recipe(step=ComponentSpec("tmln", {"compact": True})),
    "tmln on adam": recipe(step=ComponentSpec("tmln", {"base": "adam"})),
    "tmln refreshed": recipe(replay=ComponentSpec("er"), step=ComponentSpec("tmln", {"fisher_refresh_every": 2})),
    "tmln on factors of boundaries": recipe(step=ComponentSpec("tmln", {"geometry": "kfac"})),
    "a-gem around tmln": recipe(step=ComponentSpec("a-gem", {"inner": "tmln", "capacity": 7})),
    "sam around tmln": recipe(step=ComponentSpec("sam", {"inner": "tmln"})),
    "a-gem around sam around tmln": recipe(step=ComponentSpec("a-gem", {"inner": "sam", "inner.inner": "tmln"})),
    "first-session around tmln": recipe(step=ComponentSpec("first-session", {"inner": "tmln"})),
    "first-session with momentum that stays": recipe(
        step=ComponentSpec("first-session", {"inner.momentum": 0.9, "inner.reset": False})
    ),
    "first-session around adamw": recipe(step=ComponentSpec("first-session", {"inner": "adamw"})),
    "slda on another layer": recipe(answer=ComponentSpec("slda", {"layer": "0"})),
    "full Gaussians": recipe(replay=ComponentSpec("features", {"covariance": "full"})),
    "diagonal Gaussians": recipe(weights=ComponentSpec("realigned", {"covariance": "diagonal"})),
    "slow backbone around tmln": recipe(step=ComponentSpec("slow-backbone", {"inner": "tmln"})),
    "slda with few kept samples": recipe(answer=ComponentSpec("slda", {"calibration": 3})),
    "merged by F": recipe(weights=ComponentSpec("merge", {"by": "fisher"})),
    "merged by the shield": recipe(step=ComponentSpec("tmln"), weights=ComponentSpec("merge", {"by": "shield"})),
    "three parts at once": recipe(
        replay=ComponentSpec("er"), penalty=ComponentSpec("ewc++"), step=ComponentSpec("tmln")
    ),
}


@pytest.mark.filterwarnings("ignore:.*overshoot")
@pytest.mark.parametrize("case", CASES)
def test_the_formula_is_what_is_found(case: str) -> None:
    assert find_held_bytes(in_the_second_task(CASES[case])) == by_name(CASES[case])


def test_every_component_has_a_formula() -> None:
    for family, table in FAMILIES.items():
        for name in table:
            assert recipe(**{family: ComponentSpec(name)}).memory_terms() is not None, (
                f"{family} {name} does not say what it holds"
            )


@pytest.mark.filterwarnings("ignore:.*overshoot")
@pytest.mark.parametrize("case", [case for case in CASES if "ocar" not in case])  # which is not for them
def test_sums_of_weights_in_half_precision_are_single(case: str) -> None:
    """Weights in bfloat16 have their anchors, Fishers and paths in float32: twice as much as the weights."""
    model = network().bfloat16()
    learner = in_the_second_task(CASES[case], model)
    assert find_held_bytes(learner) == by_name(CASES[case], model)


def test_units_of_half_precision_by_hand() -> None:
    units = measure_units(network().bfloat16(), DATA, CLASSES)
    assert (units["N"], units["W"], units["logits"]) == (4 * 159, 2 * 159, 2 * 3)


def test_units_by_hand() -> None:
    assert measure_units(network(), DATA, CLASSES) == {
        "N": 4 * (36 + 4 + 4 + 4 + 36 * 3 + 3),
        "H": 2 * (36 + 4 + 4 + 4 + 36 * 3 + 3),
        "W": 4 * (36 + 4 + 4 + 4 + 36 * 3 + 3),
        "K": 4 * (10**2 + 4**2 + 37**2 + 3**2),
        "model": 4 * (159 + 4 + 4) + 8,
        "statistics": 4 * (4 + 4) + 8,
        "samples": 25 + 8,
        "logits": 4 * 3,
        "dC": 4 * 36 * 3,
        "d^2C": 4 * 36**2 * 3,
        "d^2": 4 * 36**2,
        "d": 4 * 36,
        "C": 4 * 3,
        "numbers": 4,
        "counts": 4 * 6,
        "doubles": 8,
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
        ("tmln-kfac", "5N + 2K + 500 samples"),
        ("der++", "N + 500 samples + 500 logits"),
        ("lwf", "N + 1 model"),
        ("adamw", "2N"),
        ("slca", "N + 18 dC + 2C"),
        ("ncm-frozen", "12 dC + 22C"),
        ("slda", "14 dC + 2 d^2 + 24C"),
        ("ranpac", "12 dC + 2000d + 8022C + 8000000 numbers"),
    ],
)
def test_formulas_as_text(method: str, text: str) -> None:
    assert format_terms(RECIPES[method].memory_terms() or []) == text


def test_halves_add_up() -> None:
    compact = RECIPES["tmln"].with_setting("step.compact", True)
    assert format_terms(compact.memory_terms() or []) == "3N + 500 samples"
    assert format_terms(compact.with_setting("step.geometry", "euclidean").memory_terms() or []) == "2.5N + 500 samples"


def test_text_of_nothing() -> None:
    assert format_terms([]) == "0"
    assert format_terms([MemoryTerm("a", "N", 2), MemoryTerm("b", "N")]) == "3N"


def test_what_is_derived_is_in_no_checkpoint() -> None:
    learner = in_the_second_task(RECIPES["tmln"])
    found = find_held_bytes(learner)
    derived = sum(found[term.name] for term in RECIPES["tmln"].memory_terms() or [] if term.derived)
    assert derived == measure_units(network(), DATA, CLASSES)["N"]
    kept = found["replay.memory"] * len(DATA) // 500  # a checkpoint holds the part that is filled
    generator = len(torch.Generator().get_state())
    assert count_saved_bytes(learner) == sum(found.values()) - derived - found["replay.memory"] + kept + generator


def test_a_part_without_a_formula_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Penalty[Settings]):
        name = "other"

    monkeypatch.setitem(FAMILIES["penalty"], "other", Other)
    assert recipe(penalty=ComponentSpec("other")).memory_terms() is None
    assert count_bytes(None, {}) is None
