"""What every part must do, walked over the tables: a new part is tested by being listed."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.checkpoint import encode
from tmln.learner.loop import end_task, take_step
from tmln.methods import Batch, Closure, Component, Step, TaskContext, read_settings
from tmln.methods.penalties import PENALTIES
from tmln.methods.recipes import FAMILIES, ComponentSpec, Recipe
from tmln.methods.replay import REPLAYS
from tmln.methods.steps import STEPS
from tmln.methods.steps.sgd import SGDStep
from tmln.methods.weights import WEIGHTS

pytestmark = pytest.mark.usefixtures("narrow")

PARTS = [(family, name) for family, table in FAMILIES.items() for name in table]
CHANGING = [(family, name) for family, name in PARTS if FAMILIES.default(family) != name]
ANSWERING = [(family, name) for family, name in CHANGING if FAMILIES[family][name].is_prediction_only]

TRAINING = [name for name, step in STEPS.items() if step.trains_at(read_settings(step, {}), 1)]  # every task


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Default strengths may be unstable on these toys; that each penalty says so is tested with the penalties."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def task(k: int) -> tuple[Tensor, Tensor]:
    """Two classes a task, each a cloud of its own."""
    generator = torch.Generator().manual_seed(k)
    centre = torch.randn(4, 6, generator=torch.Generator().manual_seed(99))
    y = torch.randint(2, (40,), generator=generator) + 2 * k
    return centre[y] * 2 + torch.randn(40, 6, generator=generator), y


def recipe(family: str, name: str, settings: dict[str, Any] | None = None) -> Recipe:
    return Recipe(components={**needed(family, name).components, family: ComponentSpec(name, settings or {})})


def needed(family: str, name: str) -> Recipe:
    """The defaults, with what this part cannot do without."""
    return Recipe(
        components={other: ComponentSpec(beside) for other, beside in kind(family, name).required_components.items()}
    )


def learner(made_of: Recipe, seed: int = 0) -> Learner:
    return Learner(network(), made_of, lr=0.01, batch_size=10, seed=seed)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def after(made_of: Recipe, tasks: int, seed: int = 0) -> Tensor:
    trained = learner(made_of, seed)
    for k in range(tasks):
        trained.learn(task(k), epochs=2)
    return weights(trained.model)


def kind(family: str, name: str) -> type[Component[Any]]:
    return FAMILIES[family][name]


def test_tables_and_names_agree() -> None:
    for family, table in FAMILIES.items():
        for name, part in table.items():
            assert part.name == name
            assert part.__doc__, f"{family} {name} has no docstring"


@pytest.mark.parametrize(("family", "name"), CHANGING)
def test_switched_off_it_is_the_plain_step(family: str, name: str) -> None:
    off = kind(family, name).off_settings
    if off is None:
        pytest.skip(f"{name} has no settings that turn it off")
    plain, switched = after(needed(family, name), 2), after(recipe(family, name, dict(off)), 2)
    if family == "step":
        torch.testing.assert_close(switched, plain, rtol=1e-6, atol=1e-7)  # a factor of one is multiplied in
    else:
        assert torch.equal(switched, plain)


@pytest.mark.parametrize(("family", "name"), [part for part in CHANGING if part not in ANSWERING])
def test_switched_on_it_changes_the_second_task(family: str, name: str) -> None:
    """Peers shipped an EWC whose penalty was always 0 and an SI identical to naive."""
    moved = after(Recipe(), 2) - after(recipe(family, name), 2)
    assert moved.abs().max() > 1e-6


@pytest.mark.parametrize(("family", "name"), ANSWERING)
def test_what_only_answers_is_no_part_of_training(family: str, name: str) -> None:
    """Weights are the same to the bit, also where a metric and a penalty are taken at boundaries; the answer is not."""
    trained, names = [], {"step": "tmln", "penalty": "lwf", **kind(family, name).required_components}
    others = {other: ComponentSpec(part) for other, part in names.items()}
    for chosen in (others, {**others, family: ComponentSpec(name, kind(family, name).active_settings)}):
        trained.append(learner(Recipe(components=chosen)))
        for k in range(2):
            trained[-1].learn(task(k), epochs=2)
    plain, answering = trained
    assert torch.equal(weights(plain.model), weights(answering.model))
    assert (scored(plain) - scored(answering)).abs().max() > 1e-6


def scored(trained: Learner) -> Tensor:
    """What the answer goes by, of both tasks."""
    x = torch.cat([task(0)[0], task(1)[0]])
    trained.model.eval()
    with trained.weights.prediction_weights(), torch.no_grad():
        return trained.answer.scores(trained.model, x)[1]


@pytest.mark.parametrize(("family", "name"), [(f, n) for f, n in CHANGING if f == "penalty" or n == "er"])
def test_the_first_task_is_left_alone(family: str, name: str) -> None:
    assert torch.equal(after(Recipe(), 1), after(recipe(family, name), 1))


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_equal_seeds_give_equal_weights(family: str, name: str) -> None:
    assert torch.equal(after(recipe(family, name), 2), after(recipe(family, name), 2))


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_state_round_trip_goes_on_exactly(family: str, name: str) -> None:
    """Save in the middle of the second task; a fresh part on a copied model goes on bit for bit.

    It saves the same, too, the order included: a file of a run that went on has the bytes of one never stopped.
    """
    made_of = recipe(family, name)
    first = learner(made_of)
    first.learn(task(0), epochs=2)
    context = make_task_context(first, 1)
    begin(first, context)
    steps(first, context, 0, 3)

    second = learner(made_of, seed=7)
    second.model.load_state_dict(copy.deepcopy(first.model.state_dict()))
    for part, twin in zip(parts(first), parts(second), strict=True):
        state = part.state_dict()
        assert_plain(state)
        twin.load_state_dict(copy.deepcopy(state))
    second.model.train()
    for trained in (first, second):
        steps(trained, replace(context, model=trained.model), 3, 6)
        end_task(trained, replace(context, model=trained.model))
        begin(trained, make_task_context(trained, 2))
        steps(trained, make_task_context(trained, 2), 0, 3)
    for part, twin in zip(parts(first), parts(second), strict=True):
        assert repr(encode(part.state_dict())[0]) == repr(encode(twin.state_dict())[0])
    assert torch.equal(weights(first.model), weights(second.model))
    assert torch.equal(scored(first), scored(second))


def parts(trained: Learner) -> tuple[Component[Any], ...]:
    return tuple(trained.components.values())


def make_task_context(trained: Learner, k: int) -> TaskContext:
    x, y = task(min(k, 1))
    return TaskContext(k, trained.model, (2, 3), (0, 1), trained.step.effective_lr, lambda: iter([(x, y)]), lambda x: x)


def begin(trained: Learner, context: TaskContext) -> None:
    for part in parts(trained):
        part.begin(context)


def steps(trained: Learner, context: TaskContext, start: int, stop: int) -> None:
    x, y = task(1)
    for k in range(start, stop):
        take_step(trained, x[5 * k : 5 * k + 5], y[5 * k : 5 * k + 5], context, 0, k)


def assert_plain(state: Any) -> None:
    """Tensors, numbers, strings and containers: what can be saved without pickling code."""
    if isinstance(state, dict):
        for key, value in state.items():
            assert isinstance(key, (str, int))
            assert_plain(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            assert_plain(value)
    else:
        assert state is None or isinstance(state, (Tensor, int, float, str, bool)), type(state)


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_boundaries_leave_the_model_alone(family: str, name: str) -> None:
    trained = learner(recipe(family, name))
    trained.learn(task(0), epochs=1)
    trained.model[1].eval()  # type: ignore[index]  # a mixed state of flags
    context = make_task_context(trained, 1)
    flags = [m.training for m in trained.model.modules()]
    buffers = copy.deepcopy(dict(trained.model.named_buffers()))
    before, random = weights(trained.model), torch.get_rng_state()
    begin(trained, context)
    steps(trained, context, 0, 2)
    moved, buffers = weights(trained.model), copy.deepcopy(dict(trained.model.named_buffers()))
    assert torch.equal(before, moved) is (trained.step.trains_at(trained.step.settings, 1) is False)
    end_task(trained, context)
    assert [m.training for m in trained.model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), random)
    if family == "weights" and kind(family, name).changed_settings:
        return  # whose boundary is where weights are taken over
    assert torch.equal(weights(trained.model), moved)
    for key, value in trained.model.named_buffers():
        assert torch.equal(value, buffers[key])


def declared(family: str, name: str, turned: bool) -> dict[str, Any]:
    part = kind(family, name)
    return {
        f"{family}.{key}": value
        for key, value in {**part.active_settings, **(part.changed_settings if turned else {})}.items()
    }


def combined(chosen: dict[str, str], turned: str | None, steps: Mapping[str, type[Step[Any]]] = STEPS) -> Tensor:
    """The weights after two tasks, with one family's part turned."""
    settings: dict[str, Any] = {}
    for family, name in chosen.items():
        settings |= declared(family, name, turned == family)
    with pytest.MonkeyPatch.context() as patched:
        for name, part in steps.items():
            patched.setitem(STEPS, name, part)
        trained = Learner(network(), "naive", **chosen, settings=settings, lr=0.01, batch_size=20)  # type: ignore[arg-type]
        for k in range(2):
            trained.learn(task(k), epochs=1)  # two steps
    assert trained.tasks == 2
    assert trained.classes == (0, 1, 2, 3)
    return weights(trained.model)


def assert_all_parts_are_felt(chosen: dict[str, str], steps: Mapping[str, type[Step[Any]]] = STEPS) -> None:
    plain = combined(chosen, None, steps)
    assert plain.isfinite().all()
    for family, name in chosen.items():
        if kind(family, name).changed_settings:
            moved = (combined(chosen, family, steps) - plain).abs().max()
            assert moved > 1e-6, f"{family} {name} is not felt in {chosen}"


@pytest.mark.slow
@pytest.mark.parametrize("step", TRAINING)
@pytest.mark.parametrize(("replay", "penalty"), list(itertools.product(REPLAYS, PENALTIES)))
def test_every_part_is_felt_in_every_combination(replay: str, penalty: str, step: str) -> None:
    assert_all_parts_are_felt({"replay": replay, "penalty": penalty, "step": step})


def beside_each(*tables: Iterable[str]) -> list[tuple[str, ...]]:
    """As many as the largest table has rows; every row of every table is in one of them."""
    rows = [list(table) for table in tables]
    return [tuple(names[k % len(names)] for names in rows) for k in range(max(map(len, rows)))]


@pytest.mark.slow
@pytest.mark.parametrize("taken", [name for name in WEIGHTS if WEIGHTS[name].changed_settings])
@pytest.mark.parametrize(("replay", "penalty", "step"), beside_each(REPLAYS, PENALTIES, TRAINING))
def test_every_choice_of_weights_is_felt_beside_every_part(replay: str, penalty: str, step: str, taken: str) -> None:
    """All pairs of it with another part; all combinations of the others are above."""
    assert_all_parts_are_felt({"replay": replay, "penalty": penalty, "step": step, "weights": taken})


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
    assert_all_parts_are_felt(chosen)
    with pytest.raises(AssertionError, match=lost):
        assert_all_parts_are_felt(chosen, {"sgd": Deaf})


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_settings_are_described_and_checked(family: str, name: str) -> None:
    part = kind(family, name)
    for setting, field in part.Settings.model_fields.items():
        assert field.description, f"{name}.{setting} has no description"
    with pytest.raises(ValueError, match="has no setting 'strenght'"):
        read_settings(part, {"strenght": 1.0})
    found = read_settings(part, {})
    assert {key: getattr(found, key) for key in part.Settings.model_fields} == dict(part.Settings())


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
        Learner(network(), **options)
