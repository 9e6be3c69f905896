"""Check a component of your own: settings, state, resume to the bit, growth, and a visible effect.

The tests of tmln put every component of its tables through the same checks. A package runs them in
its own tests::

    from tmln.testing import check_component

    def test_my_component():
        check_component(MyReplay)

They train a small network on two tasks, without files or processes, in about a second.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.checkpoint import encode
from tmln.learner.heads import grow_head
from tmln.learner.loop import end_task, make_task_context, take_step
from tmln.methods import Component, TaskContext, read_settings
from tmln.methods.recipes import FAMILIES, ComponentSpec, Recipe
from tmln.methods.registry import name_component
from tmln.streams import as_samples

__all__ = [
    "check_boundaries",
    "check_component",
    "check_effect",
    "check_growth",
    "check_off",
    "check_repeatable",
    "check_settings",
    "check_state",
]
FELT = 1e-6  # by which weights or scores differ, at least, where a component has an effect
HEAD = "3"  # the layer of the network that grows

Kind = type[Component[Any]]


def check_component(component: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Run every check that applies to a component; an AssertionError says which one failed.

    Args:
        component: The class, derived from ``tmln.methods.Replay``, ``Penalty``, ``Step``,
            ``Weights`` or ``Answer``.
        settings: Settings at which it has an effect on a small network, if not at its defaults and
            ``active_settings``.

    >>> from tmln.methods.penalties.ewc import EWC
    >>> check_component(EWC)
    """
    name_component(component)  # raises the error for what is no component
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)  # of toys
        check_settings(component)
        check_repeatable(component, settings)
        check_state(component, settings)
        check_boundaries(component, settings)
        check_growth(component, settings=settings)
        check_growth(component, within_task=True, settings=settings)
        check_off(component)
        check_effect(component, settings)


def check_settings(kind: Kind) -> None:
    """Check that the component and its settings are documented and reject what they do not know."""
    assert isinstance(getattr(kind, "name", None), str), f"{kind.__name__} has no name"
    what = _name(kind)
    assert kind.__doc__, f"{what} has no docstring"
    for setting, field in kind.Settings.model_fields.items():
        assert field.description, f"{what}: {setting} has no description"
    found = read_settings(kind, {})
    plain = kind.Settings()
    for key in kind.Settings.model_fields:
        assert getattr(found, key) == getattr(plain, key), f"{what}: {key} changes when it is read"
    message = ""
    try:
        read_settings(kind, {"strenght": 1.0})
    except ValueError as error:
        message = str(error)
    assert "has no setting 'strenght'" in message, f"{what} accepts a setting that it does not have"


def check_repeatable(kind: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Check that equal seeds give equal weights: all random numbers come from the seed."""
    made_of = make_recipe(kind, settings)
    same = torch.equal(train_tasks(made_of, 2), train_tasks(made_of, 2))
    assert same, f"{_name(kind)}: equal seeds give other weights: draw from a generator made of the seed"


def check_state(kind: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Check that a run saved within the second task goes on to the bit.

    A fresh component on a copied model loads the state; both then take steps, end the task and
    begin another, and their states, weights and predictions are compared.
    """
    what, made_of = _name(kind), make_recipe(kind, settings)
    first = make_learner(made_of)
    first.learn(make_task(0), epochs=2)
    context = make_second_context(first, 1)
    _begin(first, context)
    take_steps(first, context, 0, 3)
    second = make_learner(made_of, seed=7)
    second.model.load_state_dict(copy.deepcopy(first.model.state_dict()))
    for part, twin in zip(first.components.values(), second.components.values(), strict=True):
        state = part.state_dict()
        check_plain(state, what)
        twin.load_state_dict(copy.deepcopy(state))
    second.model.train()
    for trained in (first, second):
        take_steps(trained, replace(context, model=trained.model), 3, 6)
        end_task(trained, replace(context, model=trained.model))
        _begin(trained, make_second_context(trained, 2))
        take_steps(trained, make_second_context(trained, 2), 0, 3)
    for part, twin in zip(first.components.values(), second.components.values(), strict=True):
        same = repr(encode(part.state_dict())[0]) == repr(encode(twin.state_dict())[0])
        assert same, f"{what}: a resumed run has another state: name all state in state_names"
    same = torch.equal(flatten_weights(first.model), flatten_weights(second.model))
    assert same, f"{what}: a resumed run has other weights: name all state in state_names"
    assert torch.equal(score_tasks(first), score_tasks(second)), f"{what}: a resumed run predicts otherwise"


def check_boundaries(kind: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Check that a task's end leaves flags, random numbers, buffers and weights alone.

    Weights of the family ``weights``, which take others over there, and components that train there
    are exempt.
    """
    what = _name(kind)
    trained = make_learner(make_recipe(kind, settings))
    trained.learn(make_task(0), epochs=1)
    list(trained.model.children())[1].eval()  # a mixed state of flags
    context = make_second_context(trained, 1)
    flags = [module.training for module in trained.model.modules()]
    before, random = flatten_weights(trained.model), torch.get_rng_state()
    _begin(trained, context)
    take_steps(trained, context, 0, 2)
    moved, buffers = flatten_weights(trained.model), copy.deepcopy(dict(trained.model.named_buffers()))
    assert torch.equal(before, moved) is (trained.step.trains_at(trained.step.settings, 1) is False), (
        f"{what}: steps leave the weights as they are; trains_at says so where that is meant"
    )
    end_task(trained, context)
    assert [m.training for m in trained.model.modules()] == flags, f"{what} leaves the model in another mode"
    assert torch.equal(torch.get_rng_state(), random), f"{what} draws from torch's global random numbers"
    if kind.trains_at_end or (kind.family == "weights" and kind.changed_settings):
        return
    assert torch.equal(flatten_weights(trained.model), moved), f"{what} changes weights at a task's end"
    for key, value in trained.model.named_buffers():
        assert torch.equal(value, buffers[key]), f"{what} changes the buffer {key} at a task's end"


def check_growth(kind: Kind, within_task: bool = False, settings: Mapping[str, Any] | None = None) -> None:
    """Check that its state follows a head that gets more outputs, within a task or between tasks.

    It must have the shapes that it would have had with the larger head from the beginning; what was
    there stays to the bit, and what is new is zero, not finite, or the new weights themselves.
    """
    what = _name(kind)
    small, context = _train_to_growth(kind, 2, within_task, settings)
    large = _train_to_growth(kind, 4, within_task, settings)[0].components[kind.family].state_dict()
    before = copy.deepcopy(small.components[kind.family].state_dict())
    growth = grow_head(small, HEAD, 4)
    after = small.components[kind.family].state_dict()
    expected, found = ({path: value.shape for path, value in list_tensors(state)} for state in (large, after))
    assert found == expected, f"{what}: its state does not follow a head that grows"
    fresh = [new[2:] for new in growth.parameters.values()]
    for (path, old), (_, new) in zip(list_tensors(before), list_tensors(after), strict=True):
        assert old.dtype == new.dtype, f"{what}: {path} has another type"
        block = tuple(slice(size) for size in old.shape)
        assert torch.equal(new[block], old), f"{what}: {path} is not what it was"
        if new.shape != old.shape:
            rest = new.clone()
            rest[block] = 0
            came = new[2:] if len(new) == 4 else rest
            is_copy = any(came.shape == p.shape and torch.equal(came, p.detach()) for p in fresh)
            assert is_copy or not rest.isfinite().all() or not rest.any(), f"{what}: {path} begins otherwise"
    x, y = make_task(1)
    for number in range(3):
        take_step(small, x[:10], y[:10], context, 0, number)
    assert small.model(x).isfinite().all(), f"{what}: after the head grew, outputs are not finite"


def check_off(kind: Kind) -> None:
    """Check that at ``off_settings`` it does nothing; a step is then SGD to rounding."""
    if kind.off_settings is None:
        return
    needed = Recipe(components=_list_required(kind))
    plain, switched = train_tasks(needed, 2), train_tasks(_add(needed, kind, dict(kind.off_settings)), 2)
    if kind.family == "step":  # a factor of one is multiplied in
        torch.testing.assert_close(switched, plain, rtol=1e-6, atol=1e-7)
    else:
        assert torch.equal(switched, plain), f"{_name(kind)} has an effect at its off_settings"


def check_effect(kind: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Check that it changes what is learned by the end of the second task, or what is predicted."""
    what = _name(kind)
    if kind.is_prediction_only:
        return check_only_predicts(kind, settings)
    if FAMILIES.default(kind.family) == name_component(kind):
        return None
    moved = train_tasks(Recipe(), 2) - train_tasks(make_recipe(kind, settings), 2)
    assert moved.abs().max() > FELT, f"{what} has no effect on the second task; what are its active_settings?"
    if kind.changed_settings:
        active = {**kind.active_settings, **(settings or {})}
        one = train_tasks(make_recipe(kind, active), 2)
        other = train_tasks(make_recipe(kind, {**active, **kind.changed_settings}), 2)
        assert (one - other).abs().max() > FELT, f"{what}: changed_settings change nothing"
    return None


def check_only_predicts(kind: Kind, settings: Mapping[str, Any] | None = None) -> None:
    """Check that it changes predictions and no weight, beside a step and a penalty."""
    names = {"step": "tmln", "penalty": "lwf", **kind.required_components}
    others = {family: ComponentSpec(name) for family, name in names.items()}
    chosen = {**kind.active_settings, **(settings or {})}
    trained = [make_learner(Recipe(components=others)), make_learner(_add(Recipe(components=others), kind, chosen))]
    for one in trained:
        for k in range(2):
            one.learn(make_task(k), epochs=2)
    plain, answering = trained
    same = torch.equal(flatten_weights(plain.model), flatten_weights(answering.model))
    assert same, f"{_name(kind)} changes weights, though it says that it only predicts (is_prediction_only)"
    moved = (score_tasks(plain) - score_tasks(answering)).abs().max()
    assert moved > FELT, f"{_name(kind)} changes no prediction"


def check_plain(state: Any, what: str = "the state") -> None:
    """Check that a state has tensors, numbers, strings and containers: it is saved without code."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            assert isinstance(key, (str, int)), f"{what}: the key {key!r} of its state is neither text nor a number"
            check_plain(value, what)
    elif isinstance(state, (list, tuple)):
        for value in state:
            check_plain(value, what)
    else:
        known = state is None or isinstance(state, (Tensor, int, float, str, bool))
        assert known, f"{what}: its state holds a {type(state).__name__}; only tensors, numbers and text are saved"


# -- what is trained --


def make_network(outputs: int = 4) -> nn.Sequential:
    """Return a small network with batch norm, the same in every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs))


def make_task(k: int) -> tuple[Tensor, Tensor]:
    """Return 40 samples of the classes 2k and 2k+1, a cloud of points each."""
    generator = torch.Generator().manual_seed(k)
    centre = torch.randn(4, 6, generator=torch.Generator().manual_seed(99))
    y = torch.randint(2, (40,), generator=generator) + 2 * k
    return centre[y] * 2 + torch.randn(40, 6, generator=generator), y


def make_recipe(kind: Kind, settings: Mapping[str, Any] | None = None) -> Recipe:
    """Return the component beside defaults and what it requires."""
    return _add(Recipe(components=_list_required(kind)), kind, settings or {})


def make_learner(recipe: Recipe, seed: int = 0, outputs: int = 4) -> Learner:
    """Return a learner of the small network."""
    return Learner(make_network(outputs), recipe, lr=0.01, batch_size=10, seed=seed)


def train_tasks(recipe: Recipe, tasks: int) -> Tensor:
    """Return all weights after so many tasks."""
    trained = make_learner(recipe)
    for k in range(tasks):
        trained.learn(make_task(k), epochs=2)
    return flatten_weights(trained.model)


def flatten_weights(model: nn.Module) -> Tensor:
    """Return all weights as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def score_tasks(trained: Learner) -> Tensor:
    """Return the scores that predictions of both tasks go by."""
    x = torch.cat([make_task(0)[0], make_task(1)[0]])
    trained.model.eval()
    with trained.weights.prediction_weights(), torch.no_grad():
        return trained.answer.scores(trained.model, x)[1]


def make_second_context(trained: Learner, k: int) -> TaskContext:
    """Return the context of the second task, as the task with index ``k``."""
    x, y = make_task(min(k, 1))
    return TaskContext(k, trained.model, (2, 3), (0, 1), trained.step.effective_lr, lambda: iter([(x, y)]), lambda x: x)


def take_steps(trained: Learner, context: TaskContext, start: int, stop: int) -> None:
    """Take steps on batches of five samples of the second task."""
    x, y = make_task(1)
    for k in range(start, stop):
        take_step(trained, x[5 * k : 5 * k + 5], y[5 * k : 5 * k + 5], context, 0, k)


def list_tensors(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a nested state, with its place."""
    if isinstance(state, Tensor):
        yield path, state
    elif isinstance(state, (dict, list, tuple)):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from list_tensors(value, f"{path}.{key}")


def _train_to_growth(
    kind: Kind, outputs: int, within_task: bool, settings: Mapping[str, Any] | None
) -> tuple[Learner, TaskContext]:
    """Return a learner after a task, or some steps into the second, which has no other classes."""
    chosen = {**kind.active_settings, **(settings or {})}
    learner = make_learner(make_recipe(kind, chosen), outputs=outputs)
    learner.learn(make_task(0), epochs=2)
    x, y = make_task(0)
    context = make_task_context(learner, as_samples((x, y)), (0, 1), (0, 1))
    if within_task:
        learner.start((0, 1))
        _begin(learner, context)
        for number in range(3):
            take_step(learner, x[:10], y[:10], context, 0, number)
    return learner, context


def _begin(trained: Learner, context: TaskContext) -> None:
    for part in trained.components.values():
        part.begin(context)


def _list_required(kind: Kind) -> dict[str, ComponentSpec]:
    return {family: ComponentSpec(name) for family, name in kind.required_components.items()}


def _add(recipe: Recipe, kind: Kind, settings: Mapping[str, Any]) -> Recipe:
    spec = ComponentSpec(name_component(kind), dict(settings))
    return Recipe(components={**recipe.components, kind.family: spec})


def _name(kind: Kind) -> str:
    return f"{kind.family} {kind.name}"
