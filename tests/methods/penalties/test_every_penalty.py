"""What every penalty promises; a new one in the table is tested here without a new line."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.methods.penalties.loop import (
    Closing,
    Numbers,
    make_context,
    make_net,
    make_tasks,
    one_step,
    run_steps,
    same,
    train,
)
from tmln.methods import Batch, Penalty, read_settings
from tmln.methods.penalties import PENALTIES
from tmln.methods.penalties.none import NoPenalty
from tmln.methods.penalties.quadratic import Quadratic

# Those that hold weights or outputs from a boundary on; ``consistency`` holds replayed samples: test_consistency.py.
NAMES = [name for name in PENALTIES if name not in ("none", "consistency")]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, dict(PENALTIES[name].active_settings)) for name in NAMES),
    *(
        (name, {**PENALTIES[name].active_settings, "proximal": True})
        for name in NAMES
        if issubclass(PENALTIES[name], Quadratic)
    ),
    ("ewc++", {"strength": 3.0, "fisher_source": "dataset", "init": "first", "half": False}),
    ("ewc++", {"strength": 1.0, "normalize": True, "init": "first"}),
    ("rwalk", {"strength": 0.01, "normalize": False, "merge": "halved", "half_distance": False}),
    ("rwalk", {"strength": 1.0, "interval": 3, "init": "first", "count": "run", "relu": "normalisation"}),
    ("ewc", {"strength": 10.0, "weighting": "likelihood"}),
]


def make(name: str, model: nn.Module, **values: Any) -> Penalty[Any]:
    part = PENALTIES[name]
    return part(read_settings(part, values), model)


def naive(model: nn.Module) -> Penalty[Any]:
    return make("none", model)


def test_the_tables_names_are_the_parts_own() -> None:
    assert next(iter(PENALTIES)) == "none"
    assert all(name == part.name for name, part in PENALTIES.items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("proximal", [False, True])
def test_strength_zero_is_plain_sgd_bit_for_bit(name: str, proximal: bool) -> None:
    values: dict[str, Any] = {"strength": 0.0}
    if issubclass(PENALTIES[name], Quadratic):
        values["proximal"] = proximal
    plain, other = make_net(), make_net()
    train(naive(plain), plain, make_tasks()[:2])
    train(make(name, other, **values), other, make_tasks()[:2])
    assert same(plain.state_dict(), other.state_dict())


@pytest.mark.parametrize(("name", "values"), VARIANTS)
def test_the_first_task_is_untouched_and_the_second_is_not(name: str, values: dict[str, Any]) -> None:
    plain, other = make_net(), make_net()
    train(naive(plain), plain, make_tasks()[:1])
    train(make(name, other, **values), other, make_tasks()[:1])
    assert same(plain.state_dict(), other.state_dict())
    plain, other = make_net(), make_net()
    train(naive(plain), plain, make_tasks()[:2])
    train(make(name, other, **values), other, make_tasks()[:2])
    difference = (plain.head.weight - other.head.weight).abs().max().item()
    assert 1e-5 < difference < 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_penaltys_gradient_in_task_two_points_back(name: str) -> None:
    model, tasks = make_net(), make_tasks()
    part = make(name, model, **PENALTIES[name].active_settings)
    train(part, model, tasks[:1])
    before = model.head.weight.detach().clone()
    part.begin(make_context(model, 1, tasks[1]))
    part.after_backward()  # what has to be seen before a step
    part.add_gradient()
    with torch.no_grad():
        model.head.weight += 0.1 * torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    for p in model.parameters():
        p.grad = None
    model.eval()
    x, y = tasks[1]
    output = model(x)
    extra = part.loss(model, Batch(x, y, len(x)), output)
    if extra is not None:
        assert extra.item() > 0
        extra.backward()
    part.after_backward()
    part.add_gradient()
    gradient = model.head.weight.grad
    assert gradient is not None
    assert (gradient * (model.head.weight.detach() - before)).sum() > 0


def two_tasks(name: str, tilt: float) -> tuple[nn.Linear, torch.Tensor]:
    """Two tasks on four inputs; ``tilt`` is how much the second uses those of the first. Weights after task 1."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4, bias=False)
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.rand(16, 2, generator=generator) + torch.eye(2).repeat(8, 1) for _ in range(2))
    y = torch.arange(16) % 2
    tasks = [
        (torch.cat([first, torch.zeros(16, 2)], 1), y),
        (torch.cat([tilt * first.flip(0), second], 1), y + 2 if tilt else y),
    ]
    part = make(name, model, **PENALTIES[name].active_settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    halfway = torch.empty(0)
    for index, (x, labels) in enumerate(tasks):
        context = make_context(model, index, (x, labels), rate=0.1)
        part.begin(context)
        for _ in range(150):
            one_step(part, model, optimizer, x, labels)
        part.end(context)
        if index == 0:
            halfway = model.weight.detach().clone()
        loss = F.cross_entropy(model(x), labels).item()
        assert loss < (0.7 if tilt else 0.45), f"task {index} was not learned: {loss}"
    return model, halfway


@pytest.mark.parametrize("name", NAMES)
def test_orthogonal_inputs_are_learned_without_touching_the_first_tasks_weights(name: str) -> None:
    model, halfway = two_tasks(name, tilt=0.0)
    assert torch.equal(model.weight[:, :2], halfway[:, :2])
    assert not torch.allclose(model.weight[:, 2:], halfway[:, 2:], atol=0.1)


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(PENALTIES[name], Quadratic)])
def test_shared_inputs_are_forgotten_less_than_by_plain_sgd(name: str) -> None:
    plain, start = two_tasks("none", tilt=0.3)
    model, halfway = two_tasks(name, tilt=0.3)
    assert torch.equal(start, halfway)
    moved, moved_plain = ((m.weight - start)[:2, :2].norm().item() for m in (model, plain))
    assert moved < 0.9 * moved_plain


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), [("none", {}), *VARIANTS])
@pytest.mark.parametrize("steps", [0, 4])
def test_a_resumed_run_is_the_uninterrupted_one(name: str, values: dict[str, Any], steps: int) -> None:
    model, tasks = make_net(), make_tasks()
    part = make(name, model, **values)
    train(part, model, tasks[:1])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.5)
    part.begin(make_context(model, 1, tasks[1]))
    run_steps(part, model, optimizer, tasks[1], range(steps))

    twin = copy.deepcopy(model)
    resumed = make(name, twin, **values)
    resumed.load_state_dict(part.state_dict())
    assert same(part.state_dict(), resumed.state_dict())
    other = torch.optim.SGD([p for p in twin.parameters() if p.requires_grad], lr=0.05, momentum=0.5)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for a, b, c in ((part, model, optimizer), (resumed, twin, other)):
        run_steps(a, b, c, tasks[1], range(steps, 9))
        a.end(make_context(b, 1, tasks[1]))
        a.begin(make_context(b, 2, tasks[2]))
        run_steps(a, b, c, tasks[2], range(4))
    assert same(model.state_dict(), twin.state_dict())
    assert same(part.state_dict(), resumed.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_is_tensors_and_numbers_and_does_not_change_afterwards(name: str) -> None:
    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]

    model, tasks = make_net(), make_tasks()
    part = make(name, model, **PENALTIES[name].active_settings)
    train(part, model, tasks[:1])
    part.begin(make_context(model, 1, tasks[1]))
    state = part.state_dict()
    kept = copy.deepcopy(state)
    assert all(isinstance(leaf, (torch.Tensor, int, float)) for leaf in leaves(state))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    run_steps(part, model, optimizer, tasks[1], range(4))
    part.end(make_context(model, 1, tasks[1]))
    assert same(state, kept)


@pytest.mark.parametrize("name", PENALTIES)
def test_begin_and_end_leave_no_trace_on_the_model(name: str) -> None:
    model, tasks = make_net(), make_tasks()
    part = make(name, model, **PENALTIES[name].active_settings)
    train(part, model, tasks[:1])
    model.body[1].eval()
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.5) if p.requires_grad else None
    flags = [module.training for module in model.modules()]
    gradients = [p.grad for p in model.parameters()]
    weights, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    part.begin(make_context(model, 1, tasks[1]))
    part.end(make_context(model, 1, tasks[1]))
    assert flags == [module.training for module in model.modules()]
    assert all(a is p.grad for a, p in zip(gradients, model.parameters(), strict=True))
    assert all(p.grad is None or bool((p.grad == 0.5).all()) for p in model.parameters())
    assert same(weights, model.state_dict())
    assert torch.equal(random, torch.get_rng_state())
    assert [p.requires_grad for p in model.body[4].parameters()] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), VARIANTS)
def test_equal_seeds_give_equal_runs(name: str, values: dict[str, Any]) -> None:
    first, second = make_net(), make_net()
    a, b = make(name, first, **values), make(name, second, **values)
    train(a, first, make_tasks())
    train(b, second, make_tasks())
    assert same(first.state_dict(), second.state_dict())
    assert same(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(PENALTIES[name], Quadratic)])
def test_memory_is_taken_only_when_there_is_something_to_keep(name: str) -> None:
    part = make(name, Numbers(1.0, 2.0))
    state = part.state_dict()
    assert state.pop("positions") == [0]
    assert not any(value for value in state.values() if isinstance(value, list))


@pytest.mark.parametrize("name", PENALTIES)
def test_settings_are_described_ranged_and_searchable(name: str) -> None:
    part = PENALTIES[name]
    schema = part.Settings.model_json_schema()["properties"] if part is not NoPenalty else {}
    for key, field in part.Settings.model_fields.items():
        assert field.description
        search = schema[key]["search"]
        values = [search["low"], search["high"]] if isinstance(search, dict) else search
        assert len(values) >= 2
        for value in values:
            assert getattr(read_settings(part, {key: value}), key) == value
        if schema[key]["type"] in ("number", "integer"):
            assert {"minimum", "exclusiveMinimum"} & set(schema[key])
    assert ("strength" in part.Settings.model_fields) == (name != "none")
    assert part.needs_boundary == (name not in ("none", "consistency"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "much"])
def test_a_bad_value_is_named(name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=r"penalty\.strength = "):
        read_settings(PENALTIES[name], {"strength": bad})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ewc++", {"alpha": 0.0}),
        ("ewc++", {"alpha": 1.5}),
        ("ewc++", {"fisher_source": "onlin"}),
        ("ewc++", {"init": "last"}),
        ("rwalk", {"interval": 0}),
        ("rwalk", {"interval": 2.5}),
        ("rwalk", {"eps": 0.0}),
        ("rwalk", {"merge": "sum"}),
        ("rwalk", {"init": "last"}),
        ("rwalk", {"count": "epoch"}),
        ("rwalk", {"relu": "never"}),
        ("ewc", {"gamma": 1.1}),
        ("ewc", {"weighting": "loss"}),
        ("si", {"damping": 0.0}),
        ("lwf", {"temperature": 0.0}),
    ],
)
def test_other_settings_have_ranges_too(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        read_settings(PENALTIES[name], values)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown penalty 'ewc#'; did you mean 'ewc"):
        PENALTIES.find("ewc#")
    for name in NAMES:
        with pytest.raises(ValueError, match="has no setting 'strenght'; did you mean 'strength'"):
            read_settings(PENALTIES[name], {"strenght": 1.0})
    with pytest.raises(ValueError, match="'none' has no setting 'strength'"):
        read_settings(NoPenalty, {"strength": 1.0})


def test_every_quadratic_penalty_warns_with_its_own_limit() -> None:
    for name in NAMES:
        if not issubclass(PENALTIES[name], Quadratic):
            continue
        limit = 2 if name in ("ewc++", "ewc") else 1
        model = Numbers(0.0)
        part: Any = make(name, model, strength=4.0)
        part.consolidate([torch.ones(1, dtype=torch.float64)])
        with pytest.warns(UserWarning, match=rf"strength 4 x largest importance 1 = {limit}; from {limit} on"):
            part.begin(model.context(1, limit / 4))


def test_a_part_is_made_from_settings_and_a_model_alone() -> None:
    for part in PENALTIES.values():
        first, second, *more = inspect.signature(part).parameters.values()
        assert (first.name, second.name) == ("settings", "model")
        assert all(parameter.default is not parameter.empty for parameter in more)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), VARIANTS)
def test_a_parent_of_the_model_is_as_good_as_the_model(name: str, values: dict[str, Any]) -> None:
    """A wrapper prefixes the parameters' names; with all classes open the runs are the same."""
    model, inner = make_net(), make_net()
    parent = Closing(inner, range(6))
    train(make(name, model, **values), model, make_tasks())
    train(make(name, parent, **values), parent, make_tasks())
    for (key, value), other in zip(model.state_dict().items(), inner.state_dict().values(), strict=True):
        torch.testing.assert_close(other, value, rtol=1e-4, atol=1e-6, msg=key)


@pytest.mark.parametrize(("name", "values"), VARIANTS)
def test_closed_classes_leave_everything_finite_and_their_rows_alone(name: str, values: dict[str, Any]) -> None:
    model = make_net()
    parent = Closing(model, range(4))
    before = model.head.weight[4:].detach().clone()
    part = make(name, parent, **values)
    train(part, parent, make_tasks()[:2])
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert torch.equal(model.head.weight[4:], before)
    if isinstance(part, Quadratic):
        assert all(value.isfinite().all() for value in part.importance)
        rows = next(w for p, w in zip(part.parameters, part.importance, strict=True) if p is model.head.weight)
        assert not rows[4:].any()
        assert rows[:4].any()
