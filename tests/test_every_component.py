"""What every component must do, walked over the tables: a new component is tested by being listed."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln import testing
from tmln.learner import Learner
from tmln.methods import Batch, Closure, Component, Step, TaskContext, read_settings
from tmln.methods.penalties import PENALTIES
from tmln.methods.recipes import FAMILIES, Recipe
from tmln.methods.replay import REPLAYS
from tmln.methods.replay.memory_replay import MemoryReplay
from tmln.methods.steps import STEPS
from tmln.methods.steps.sgd import SGDStep
from tmln.methods.weights import WEIGHTS

pytestmark = pytest.mark.usefixtures("narrow")

COMPONENTS = [(family, name) for family, table in FAMILIES.items() for name in table]
CHANGING = [(family, name) for family, name in COMPONENTS if FAMILIES.default(family) != name]
ANSWERING = [(family, name) for family, name in CHANGING if FAMILIES[family][name].is_prediction_only]

TRAINING = [name for name, step in STEPS.items() if step.trains_at(read_settings(step, {}), 1)]  # every task


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Default strengths may be unstable on these toys; that each penalty says so is tested with the penalties."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def recipe(family: str, name: str, settings: dict[str, Any] | None = None) -> Recipe:
    return testing.make_recipe(kind(family, name), settings)


def kind(family: str, name: str) -> type[Component[Any]]:
    return FAMILIES[family][name]


def test_tables_and_names_agree() -> None:
    for family, table in FAMILIES.items():
        for name, component in table.items():
            assert component.name == name
            assert component.__doc__, f"{family} {name} has no docstring"


@pytest.mark.parametrize(("family", "name"), CHANGING)
def test_switched_off_it_is_the_plain_step(family: str, name: str) -> None:
    if kind(family, name).off_settings is None:
        pytest.skip(f"{name} has no settings that turn it off")
    testing.check_off(kind(family, name))


@pytest.mark.parametrize(("family", "name"), [component for component in CHANGING if component not in ANSWERING])
def test_switched_on_it_changes_the_second_task(family: str, name: str) -> None:
    """Peers shipped an EWC whose penalty was always 0 and an SI identical to naive."""
    testing.check_effect(kind(family, name))


@pytest.mark.parametrize(("family", "name"), ANSWERING)
def test_what_only_answers_is_no_part_of_training(family: str, name: str) -> None:
    """Weights are the same to the bit, also where a metric and a penalty are taken at boundaries; the answer is not."""
    testing.check_only_predicts(kind(family, name))


@pytest.mark.parametrize(("family", "name"), [(f, n) for f, n in CHANGING if f == "penalty" or n == "er"])
def test_the_first_task_is_left_alone(family: str, name: str) -> None:
    assert torch.equal(testing.train_tasks(Recipe(), 1), testing.train_tasks(recipe(family, name), 1))


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_equal_seeds_give_equal_weights(family: str, name: str) -> None:
    testing.check_repeatable(kind(family, name))


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_state_round_trip_goes_on_exactly(family: str, name: str) -> None:
    """Save in the middle of the second task; a fresh component on a copied model goes on bit for bit.

    It saves the same, too, the order included: a file of a run that went on has the bytes of one never stopped.
    """
    testing.check_state(kind(family, name))


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_boundaries_leave_the_model_alone(family: str, name: str) -> None:
    testing.check_boundaries(kind(family, name))


def declared(family: str, name: str, turned: bool) -> dict[str, Any]:
    component = kind(family, name)
    return {
        f"{family}.{key}": value
        for key, value in {**component.active_settings, **(component.changed_settings if turned else {})}.items()
    }


def combined(chosen: dict[str, str], turned: str | None, steps: Mapping[str, type[Step[Any]]] = STEPS) -> Tensor:
    """The weights after two tasks, with one family's component turned."""
    settings: dict[str, Any] = {}
    for family, name in chosen.items():
        settings |= declared(family, name, turned == family)
    with pytest.MonkeyPatch.context() as patched:
        for name, component in steps.items():
            patched.setitem(STEPS, name, component)
        trained = Learner(testing.make_network(), "naive", **chosen, settings=settings, lr=0.01, batch_size=20)  # type: ignore[arg-type]
        for k in range(2):
            trained.learn(testing.make_task(k), epochs=1)  # two steps
    assert trained.tasks == 2
    assert trained.classes == (0, 1, 2, 3)
    return testing.flatten_weights(trained.model)


def assert_all_components_are_felt(chosen: dict[str, str], steps: Mapping[str, type[Step[Any]]] = STEPS) -> None:
    plain = combined(chosen, None, steps)
    assert plain.isfinite().all()
    for family, name in chosen.items():
        if kind(family, name).changed_settings:
            moved = (combined(chosen, family, steps) - plain).abs().max()
            assert moved > 1e-6, f"{family} {name} is not felt in {chosen}"


@pytest.mark.slow
@pytest.mark.parametrize("step", TRAINING)
@pytest.mark.parametrize(("replay", "penalty"), list(itertools.product(REPLAYS, PENALTIES)))
def test_every_component_is_felt_in_every_combination(replay: str, penalty: str, step: str) -> None:
    assert_all_components_are_felt({"replay": replay, "penalty": penalty, "step": step})


def beside_each(*tables: Iterable[str]) -> list[tuple[str, ...]]:
    """As many as the largest table has rows; every row of every table is in one of them."""
    rows = [list(table) for table in tables]
    return [tuple(names[k % len(names)] for names in rows) for k in range(max(map(len, rows)))]


@pytest.mark.slow
@pytest.mark.parametrize("taken", [name for name in WEIGHTS if WEIGHTS[name].changed_settings])
@pytest.mark.parametrize(("replay", "penalty", "step"), beside_each(REPLAYS, PENALTIES, TRAINING))
def test_every_choice_of_weights_is_felt_in_every_pair(replay: str, penalty: str, step: str, taken: str) -> None:
    """All pairs of it with another component; all combinations of the others are above.

    Weights that need a memory are beside the one that they name where the replay has none.
    """
    if not issubclass(REPLAYS[replay], MemoryReplay):
        replay = WEIGHTS[taken].required_components.get("replay", replay)
    assert_all_components_are_felt({"replay": replay, "penalty": penalty, "step": step, "weights": taken})


class Deaf(SGDStep):
    """Asks for a gradient of its own, as sharpness-aware steps do, and so loses what others put into it."""

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        self.batch = batch

    def own_gradient(self, context: TaskContext) -> None:
        loss = nn.functional.cross_entropy(context.model(self.batch.x), self.batch.y)
        trainable = list(context.model.parameters())
        for p, gradient in zip(trainable, torch.autograd.grad(loss, trainable), strict=True):
            p.grad = gradient

    def step(self, closure: Closure, context: TaskContext) -> None:
        closure()
        self.own_gradient(context)
        self.optimizer.step()


@pytest.mark.parametrize(
    ("chosen", "lost"),
    [
        ({"replay": "none", "penalty": "ewc", "step": "sgd"}, "penalty ewc"),
        ({"replay": "er-ace", "penalty": "none", "step": "sgd"}, "replay er-ace"),
    ],
)
def test_a_step_that_ignores_what_others_add_is_noticed(chosen: dict[str, str], lost: str) -> None:
    assert_all_components_are_felt(chosen)
    with pytest.raises(AssertionError, match=lost):
        assert_all_components_are_felt(chosen, {"sgd": Deaf})


@pytest.mark.parametrize(("family", "name"), COMPONENTS)
def test_settings_are_described_and_checked(family: str, name: str) -> None:
    testing.check_settings(kind(family, name))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": "tlmn"}, "unknown step 'tlmn'; did you mean 'tmln'"),
        ({"replay": "er-acee"}, "unknown replay 'er-acee'; did you mean 'er-ace'"),
        ({"penalty": "ewc+"}, "unknown penalty 'ewc[+]'; did you mean 'ewc"),
        ({"method": "tlmn"}, "unknown method 'tlmn'; did you mean 'tmln'"),
        ({"settings": {"step.dampin": 1}}, "no setting 'dampin'; did you mean 'damping'"),
        ({"settings": {"step.damping": 0}}, r"step\.damping = 0: .*greater than 0"),
        ({"settings": {"stop.damping": 1}}, "unknown setting 'stop.damping'; did you mean 'step'"),
        ({"settings": {"replay.capacity": 0}}, r"replay\.capacity = 0"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"batch_size": 0}, "batch_size"),
        ({"logit_mask": "some"}, "logit_mask"),
    ],
)
def test_bad_choices_name_the_nearest(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Learner(testing.make_network(), **options)
