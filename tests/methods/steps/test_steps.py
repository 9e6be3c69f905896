"""Steps as parts: the hand vectors of momentum and projection, and what a task boundary does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature import diagonal_fisher
from tmln.curvature.kfac import KFAC
from tmln.learner import Learner
from tmln.methods import Batch, Step, TaskContext, read_settings
from tmln.methods.replay import Reservoir
from tmln.methods.steps import STEPS
from tmln.methods.steps.a_gem import AGEMStep, project
from tmln.methods.steps.tmln import TMLNStep
from tmln.optim import TMLN, TMLNKFAC, Boundaries
from tmln.seeds import seed_of


def make(name: str, model: nn.Module, lr: float = 0.1, memory: Reservoir | None = None, **settings: Any) -> Step[Any]:
    kind = STEPS[name]
    return kind(read_settings(kind, settings), model, lr, 0, memory)


def context(model: nn.Module, x: Tensor, y: Tensor, index: int = 0) -> TaskContext:
    return TaskContext(index, model, (0, 1), (2,), 0.1, lambda: iter([(x, y)]), lambda x: x * 2)


def asked() -> float:
    """A closure of a gradient that is there already."""
    return 0.0


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 3, generator=generator), torch.randint(4, (12,), generator=generator)


def test_momentum_by_hand_and_its_reset() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    step = make("sgd", model, momentum=0.9)
    moves = []
    for index in (0, 0, 0, 1):
        if index:
            step.begin(context(model, *data(), index=index))
        before = model.weight.item()
        model.weight.grad = torch.ones(1, 1)
        step.step(asked, context(model, *data(), index=index))
        moves.append(before - model.weight.item())
    assert moves == pytest.approx([0.1, 0.19, 0.271, 0.1])


def test_momentum_is_kept_on_request() -> None:
    model = nn.Linear(1, 1, bias=False)
    step = make("sgd", model, momentum=0.9, reset=False)
    model.weight.grad = torch.ones(1, 1)
    step.step(asked, context(model, *data()))
    step.begin(context(model, *data(), index=1))
    before = model.weight.item()
    step.step(asked, context(model, *data()))
    assert before - model.weight.item() == pytest.approx(0.19)


def test_decay_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    step = make("sgd", model, weight_decay=0.5)
    model.weight.grad = torch.zeros(1, 1)
    step.step(asked, context(model, *data()))
    assert model.weight.item() == pytest.approx(2 - 0.1 * 0.5 * 2)


def test_projection_by_hand() -> None:
    reference = [torch.tensor([1.0, 0.0]), torch.tensor([0.0])]
    against = [torch.tensor([-2.0, 3.0]), torch.tensor([5.0])]
    assert [t.tolist() for t in project(against, reference)] == [[0.0, 3.0], [5.0]]
    along = [torch.tensor([2.0, 3.0]), torch.tensor([5.0])]
    assert project(along, reference) is along
    little = [torch.tensor([0.1, 3.0]), torch.tensor([5.0])]
    assert project(little, reference) is little
    long = [torch.tensor([2.0, 0.0]), torch.tensor([0.0])]
    assert [t.tolist() for t in project(against, long)] == [[0.0, 3.0], [5.0]]  # whatever the reference's length
    zero = [torch.zeros(2), torch.zeros(1)]
    assert project(against, zero) is against


def test_agem_does_not_raise_the_memorys_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    step = make("a-gem", model, lr=1e-3)
    assert isinstance(step, AGEMStep)
    old, labels = data()
    model.eval()
    for _ in range(30):  # learn the memory first
        model.zero_grad()
        F.cross_entropy(model(old * 2), labels).backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.sub_(0.2 * p.grad)
    model.zero_grad()
    step.end(context(model, old, labels))
    assert step.checks.seen == 12
    x, y = old, (labels + 1) % 4  # a task that contradicts the memory
    F.cross_entropy(model(x * 2), y).backward()
    plain = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    before = F.cross_entropy(model(old * 2), labels).item()
    buffers = [b.clone() for b in model.buffers()]
    step.step(asked, context(model, old, labels, index=1))
    used = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert not torch.equal(plain, used)
    assert F.cross_entropy(model(old * 2), labels).item() <= before + 1e-6
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


def test_agem_checks_a_part_of_the_model_that_the_memory_does_not_use() -> None:
    """A parameter that the memory's loss does not reach keeps its gradient."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 4), nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.used(x)
            return output

    torch.manual_seed(0)
    model = Two()
    step = make("a-gem", model)
    x, y = data()
    step.end(context(model, x, y))
    F.cross_entropy(model(x * 2), y).backward()
    for p in model.used.parameters():
        assert p.grad is not None
        p.grad.neg_()  # up the memory's loss
    model.unused.grad = torch.tensor([3.0, -4.0])
    step.step(asked, context(model, *data()))
    torch.testing.assert_close(model.unused.detach(), torch.tensor([-0.3, 0.4]))


def test_agem_passes_on_what_its_inner_step_needs() -> None:
    torch.manual_seed(0)
    model, memory = nn.Linear(3, 4), Reservoir(7)
    x, y = data()
    outer = make("a-gem", model, inner="tmln")
    assert isinstance(outer, AGEMStep)
    assert outer.inner.memory is outer.checks  # where there is no replay
    assert make("a-gem", model, inner="tmln", memory=memory).inner.memory is memory  # type: ignore[attr-defined]
    assert outer.effective_lr == make("tmln", model).effective_lr == pytest.approx(1.0)
    assert outer.checks.generator.initial_seed() == seed_of(0, "checks")  # not the inner step's
    assert outer.checks.capacity == 500
    called = []
    for name in ("begin", "before_forward", "step", "end"):
        setattr(outer.inner, name, lambda *given, name=name: called.append((name, len(given))))
    outer.begin(context(model, x, y))
    outer.before_forward(Batch(x, y, 6), context(model, x, y))
    outer.step(asked, context(model, x, y))
    outer.end(context(model, x, y))
    assert called == [("begin", 1), ("before_forward", 2), ("step", 2), ("end", 1)]


def test_agem_without_a_check_is_the_inner_step() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    step = make("a-gem", model, batch=0)
    x, y = data()
    step.end(context(model, x, y))
    F.cross_entropy(model(x * 2), y).backward()
    gradient = [p.grad.neg_().clone() for p in model.parameters() if p.grad is not None]
    step.step(asked, context(model, *data()))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradient, strict=True) if p.grad is not None)


def test_tmln_takes_the_metric_of_the_memory() -> None:
    torch.manual_seed(0)
    model, memory = nn.Linear(3, 4), Reservoir(5)
    step = make("tmln", model, memory=memory)
    x, y = data()
    F.cross_entropy(model(x), y).backward()
    step.step(asked, context(model, x, y))
    memory.add(x, y)
    step.end(context(model, x, y))
    stored = [(x * 2, y) for x, y in memory.batches(5)]  # prepared as for a test
    expected = diagonal_fisher(model, stored)
    assert torch.equal(step.optimizer.state[model.weight]["fisher"], expected["weight"])


def test_tmln_without_a_memory_takes_the_task_just_learned() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    step = make("tmln", model)
    x, y = data()
    F.cross_entropy(model(x), y).backward()
    step.step(asked, context(model, x, y))
    step.end(context(model, x, y))
    assert torch.equal(step.optimizer.state[model.weight]["fisher"], diagonal_fisher(model, [(x * 2, y)])["weight"])


def test_tmln_options() -> None:
    model = nn.Linear(3, 4)
    assert make("tmln", model, lr=0.1).effective_lr == pytest.approx(1.0)
    assert make("tmln", model, lr=0.1, match_base_lr=True).effective_lr == pytest.approx(0.1)
    assert make("tmln", model, lr=0.1, form="proximal").effective_lr == pytest.approx(0.1)
    memory = Reservoir(8)
    memory.add(*data())
    step = make("tmln", model, memory=memory, fisher_refresh_every=2)
    assert isinstance(step, TMLNStep)
    for k in range(2):
        assert k == 0 or step.optimizer.state[model.weight]["fisher"].max() == 0
        model.zero_grad()
        F.cross_entropy(model(data()[0]), data()[1]).backward()
        step.step(asked, context(model, *data()))
    assert step.optimizer.state[model.weight]["fisher"].max() > 0


def test_tmln_looks_again_only_when_asked() -> None:
    model, memory = nn.Linear(3, 4), Reservoir(8)
    memory.add(*data())
    x, y = data()
    for step in (make("tmln", model, memory=memory), make("tmln", model, memory=Reservoir(8), fisher_refresh_every=1)):
        F.cross_entropy(model(x), y).backward()
        step.step(asked, context(model, x, y))  # without a period, or with nothing in memory yet
        assert step.optimizer.state[model.weight]["fisher"].max() == 0


def test_tmln_draws_no_progress_bar_into_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = []

    def fisher(model: nn.Module, batches: Any, progress: bool | None = None) -> Any:
        wanted.append(progress)
        return diagonal_fisher(model, batches, progress=False)

    monkeypatch.setattr("tmln.methods.steps.tmln.diagonal_fisher", fisher)
    model, memory = nn.Linear(3, 4), Reservoir(8)
    memory.add(*data())
    step = make("tmln", model, memory=memory, fisher_refresh_every=1)
    F.cross_entropy(model(data()[0]), data()[1]).backward()
    step.step(asked, context(model, *data()))
    step.end(context(model, *data()))
    assert wanted == [False, False]


def stream(**settings: Any) -> Learner:
    torch.manual_seed(0)
    numbers = {"replay.fill": "online", **{f"step.{name}": value for name, value in settings.items()}}
    return Learner(nn.Linear(3, 4), "tmln", batch_size=4, settings=numbers)


def boundaries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps at which one was passed, from now on."""
    found: list[int] = []
    end = TMLNStep.end

    def noted(self: TMLNStep, context: TaskContext) -> None:
        found.append(self.steps)
        end(self, context)

    monkeypatch.setattr(TMLNStep, "end", noted)
    return found


def test_tmln_passes_boundaries_of_its_own_where_there_are_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every two steps, over calls of learn() that end nowhere, and over a save between two of them."""
    found = boundaries(monkeypatch)
    learner = stream(boundary_every=2, decay=0.5)
    learner.learn(data(), 2, boundary=False)  # three steps an epoch; what is due after the last waits for the next
    assert found == [2, 4]
    other = stream(boundary_every=2, decay=0.5)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):
        found.clear()
        one.learn(data(1), boundary=False)
        assert found == [6, 8]
    for p, q in zip(learner.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(p, q)
        kept = learner.step.optimizer.state[p]
        assert torch.equal(kept["sensitivity"], other.step.optimizer.state[q]["sensitivity"])
        assert kept["sensitivity"].max() > 0


def test_tmln_does_not_pass_a_tasks_end_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = boundaries(monkeypatch)
    learner = stream(boundary_every=3)
    learner.learn(data())  # three steps, and the end
    other = stream(boundary_every=3)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):
        found.clear()
        one.learn(data(1), 2)
        assert found == [6, 9]


def test_tmln_boundaries_are_those_of_a_loop_by_hand() -> None:
    """tmln.Boundaries in a loop with the same batches."""
    learner = stream(boundary_every=2, decay=0.5)
    hand = nn.Linear(3, 4)
    hand.load_state_dict(learner.model.state_dict())
    optimizer, memory = TMLN(hand.parameters(), decay=0.5), Reservoir(500, seed_of(0, "replay"))
    marks = Boundaries(optimizer, memory, every=2)
    x, y = data()
    for rows in torch.randperm(12, generator=torch.Generator().manual_seed(seed_of(0, "order"))).split(4):
        old = memory.sample(4) if len(memory) else (x[:0], y[:0])
        optimizer.zero_grad()
        F.cross_entropy(hand(torch.cat([x[rows], old[0]])), torch.cat([y[rows], old[1]])).backward()
        optimizer.step()
        memory.add(x[rows], y[rows])
        marks.step()
    learner.learn((x, y), boundary=False)
    assert marks.count == 1
    for p, q in zip(learner.model.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(p, q)
        torch.testing.assert_close(learner.step.optimizer.state[p]["fisher"], optimizer.state[q]["fisher"])


def test_tmln_boundaries_of_its_own_need_a_memory() -> None:
    with pytest.raises(ValueError, match=r"boundary_every = 2 takes F of a memory, .* replay.fill=online"):
        make("tmln", nn.Linear(3, 4), boundary_every=2)
    assert not make("tmln", nn.Linear(3, 4), boundary_every=2, geometry="euclidean").needs_boundary
    with pytest.raises(ValueError, match=r"boundary_every = 2\), and the memory is empty: set replay.fill=online"):
        Learner(nn.Linear(3, 4), "tmln", batch_size=4, settings={"step.boundary_every": 2}).learn(data())


def test_tmln_offload_reaches_the_optimizer() -> None:
    for offload in (False, True):
        step = make("tmln", nn.Linear(3, 4), offload=offload)
        assert step.optimizer.param_groups[0]["offload"] is offload


def test_tmln_goes_on_counting_after_a_load() -> None:
    """Three steps between looks: two before the save, so that the next one looks."""
    torch.manual_seed(0)
    model, memory = nn.Linear(3, 4), Reservoir(8)
    memory.add(*data())
    x, y = data()
    first, second = (make("tmln", model, memory=memory, fisher_refresh_every=3) for _ in range(2))
    F.cross_entropy(model(x), y).backward()
    for _ in range(2):
        first.step(asked, context(model, x, y))
    second.load_state_dict(first.state_dict())
    second.step(asked, context(model, x, y))
    assert second.optimizer.state[model.weight]["fisher"].max() > 0


def test_tmln_without_curvature_looks_at_no_data() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    step = make("tmln", model, geometry="euclidean")
    x, y = data()
    F.cross_entropy(model(x), y).backward()
    step.step(asked, context(model, *data()))
    step.end(TaskContext(0, model, (0, 1), (2,), 0.1, lambda: pytest.fail("looked"), lambda x: x))
    assert step.optimizer.state[model.weight]["sensitivity"].max() == 1  # but the path has been scored


@pytest.mark.parametrize("name", ["upgd", "ocar"])
def test_the_seed_reaches_the_optimizer(name: str) -> None:
    """UPGD's noise, OCAR's drawn labels."""
    x, y = data()
    moved = []
    for seed in (0, 0, 1):
        model = nn.Linear(3, 4)
        for p in model.parameters():
            nn.init.constant_(p, 0.1)
        step = STEPS[name](read_settings(STEPS[name], {}), model, 0.1, seed)
        step.before_forward(Batch(x, y, 12), context(model, x, y))
        F.cross_entropy(model(x), y).backward()
        step.step(asked, context(model, x, y))
        moved.append(model.weight.detach().clone())
    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


def test_ocars_rate_is_that_without_curvature() -> None:
    assert make("ocar", nn.Linear(3, 4), lr=0.1, damping=0.5).effective_lr == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("weight", "known", "classes", "expected"),
    [
        ("one", (0,), (1, 2, 3), 1.0),
        ("class_ratio", (0,), (1, 2, 3), 1 / 3),
        ("class_ratio", (0, 1, 2), (3,), 3.0),
        ("class_ratio", (), (1, 2), 1.0),  # the first task
        ("class_ratio", (1, 2), (), 1.0),  # classes are not told
    ],
)
def test_ocar_observes_what_is_replayed(
    monkeypatch: pytest.MonkeyPatch, weight: str, known: tuple[int, ...], classes: tuple[int, ...], expected: float
) -> None:
    model = nn.Linear(3, 4)
    step = make("ocar", model, replay_weight=weight)
    seen: list[tuple[int, float]] = []

    def observe(x: Tensor, y: Tensor, replay: int, replay_weight: float) -> None:
        seen.append((replay, replay_weight))

    monkeypatch.setattr(step.optimizer, "observe", observe)
    x, y = data()
    step.before_forward(Batch(x, y, 5), TaskContext(1, model, classes, known, 0.1, lambda: iter(()), lambda x: x))
    assert seen == [(7, expected)]


def test_ocar_weighs_replay_by_the_ratio_of_classes() -> None:
    torch.manual_seed(0)
    x, y = data()
    factors = []
    for weight in ("one", "class_ratio"):
        model = nn.Linear(3, 4)
        with torch.no_grad():
            model.weight.fill_(0.1)
            model.bias.zero_()
        step = make("ocar", model, replay_weight=weight, fisher="exact")
        known = TaskContext(1, model, (0,), (1, 2, 3), 0.1, lambda: iter(()), lambda x: x)
        step.before_forward(Batch(x, y, 6), known)
        factors.append(step.state_dict()["optimizer"]["curvature"])
    flat = [torch.cat([t.flatten() for t in _tensors(f) if t.is_floating_point()]) for f in factors]
    assert not torch.allclose(flat[0], flat[1])


def _tensors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, dict):
        return [t for value in state.values() for t in _tensors(value)]
    return [t for value in state for t in _tensors(value)] if isinstance(state, (list, tuple)) else []


def test_tmln_in_the_proximal_form_learns_the_first_task_at_lr() -> None:
    """There lambda is 1/eta, so that lr is the rate already; multiplying it by lambda made it a tenth."""
    for matched in (False, True):
        model = nn.Linear(1, 1, bias=False)
        step = make("tmln", model, lr=0.1, form="proximal", match_base_lr=matched)
        assert step.effective_lr == pytest.approx(0.1)
        before = model.weight.item()
        model.weight.grad = torch.ones(1, 1)
        step.step(asked, context(model, *data()))
        assert before - model.weight.item() == pytest.approx(0.1)


def test_tmln_refuses_to_refresh_what_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"geometry 'euclidean' uses no F"):
        make("tmln", nn.Linear(3, 4), memory=Reservoir(8), geometry="euclidean", fisher_refresh_every=2)
    with pytest.raises(ValueError, match=r"fisher_refresh_every = 2 takes F of a memory, and there is none"):
        make("tmln", nn.Linear(3, 4), fisher_refresh_every=2)


def test_ocars_rate_is_that_of_the_damping_in_force() -> None:
    model = nn.Linear(3, 4)
    assert make("ocar", model, lr=0.02, damping=0.1).effective_lr == pytest.approx(0.2)
    grown = make("ocar", model, lr=0.02, damping_init="lr", damping_increment=0.02)
    assert grown.effective_lr == pytest.approx(1.0)  # tau = lr
    x, y = data()
    grown.before_forward(Batch(x, y, 12), context(model, x, y))
    F.cross_entropy(model(x), y).backward()
    grown.step(asked, context(model, x, y))
    assert grown.effective_lr == pytest.approx(0.5)  # tau = 2 lr


def test_tmln_says_what_a_boundary_found() -> None:
    torch.manual_seed(0)
    last = nn.Linear(5, 4)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), last)
    step = make("tmln", model, memory=Reservoir(12))
    x, y = data()
    assert dict(step.diagnostics) == {}
    F.cross_entropy(model(x), y).backward()
    step.step(asked, context(model, x, y))
    assert isinstance(step, TMLNStep)
    omega: dict[Tensor, float] = {p: step.optimizer.path(p).sum().item() for p in model.parameters()}
    step.end(context(model, x, y))
    head = omega[last.weight] + omega[last.bias]  # in the first task scores are omega / eps
    assert step.diagnostics["head share"] == pytest.approx(head / sum(omega.values()))
    shield = step.optimizer.protection()
    assert step.diagnostics["slow-down, median"] == shield.slowdown_median
    assert step.diagnostics["slow-down, 95th percentile"] == shield.slowdown_p95
    assert 0 < step.diagnostics["active"] <= 1


def test_a_gem_passes_its_inner_steps_diagnostics_on() -> None:
    model = nn.Linear(3, 4)
    step = make("a-gem", model, inner="tmln")
    x, y = data()
    F.cross_entropy(model(x), y).backward()
    step.step(asked, context(model, x, y))
    step.end(context(model, x, y))
    assert "head share" in step.diagnostics


def kfac_learner(**settings: Any) -> Learner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    chosen = {f"step.{name}": value for name, value in {"geometry": "kfac", **settings}.items()}
    return Learner(model, "tmln", settings=chosen, batch_size=4)


@pytest.mark.parametrize(
    "settings",
    [{}, {"fisher_refresh_every": 2}, {"factors": "running", "update_every": 2}, {"momentum": 0.9, "clip_norm": 1.0}],
)
def test_kfac_goes_on_in_the_middle_of_a_task_to_the_bit(settings: dict[str, Any]) -> None:
    whole, stopped, resumed = (kfac_learner(**settings) for _ in range(3))
    for trained in (whole, stopped):
        trained.learn(data(1), epochs=1)
    whole.learn(data(2), epochs=3)

    def stop(epoch: int, number: int, loss: float) -> None:
        if (epoch, number) == (1, 1):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        stopped.learn(data(2), epochs=3, atomic=False, on_step=stop)
    resumed.load_state_dict(stopped.state_dict())
    resumed.learn(data(2), epochs=3)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def test_kfacs_boundary_measures_the_memory_and_running_factors_the_batch() -> None:
    frozen, running = kfac_learner(), kfac_learner(factors="running")
    for trained in (frozen, running):
        trained.learn(data(1), epochs=1)
    assert isinstance(frozen.step.optimizer, TMLNKFAC)
    assert isinstance(running.step.optimizer, TMLNKFAC)
    memory = frozen.replay.memory
    assert memory is not None
    expected = KFAC(frozen.model, seed=seed_of(0, "step")).measure(memory.batches(256, ("x", "y")))
    found = frozen.step.optimizer.kfac.factors
    assert found.keys() == expected.keys() == {"0", "3"}
    assert all(torch.equal(a, b) for name in found for a, b in zip(found[name], expected[name], strict=True))
    assert running.step.optimizer._last_update == 0  # its first batch's: three steps are fewer than ten
    assert not torch.equal(running.step.optimizer.kfac.factors["0"].input, found["0"].input)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"form": "proximal"}, "no proximal form"),
        ({"geometry": "fisher", "factors": "running"}, "step.factors = 'running' .*geometry 'fisher' has none"),
        ({"geometry": "euclidean", "update_every": 3}, "step.update_every = 3"),
    ],
)
def test_settings_that_do_not_go_with_kfac(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kfac_learner(**settings)


@pytest.mark.parametrize("decay_norms", [True, False])
def test_mofo_decays_norms_unless_told_otherwise(decay_norms: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    step = make("mofo", model, weight_decay=0.5, decay_norms=decay_norms)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    step.step(asked, context(model, *data()))
    for name, p in model.named_parameters():
        factor = 1.0 if name.startswith("1.") and not decay_norms else 1 - 0.1 * 0.5
        torch.testing.assert_close(p.detach(), factor * before[name])
