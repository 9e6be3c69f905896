"""The loop: what it feeds the parts, how it evaluates, when it stops."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from tmln.learner import Diverged, Learner, evaluate
from tmln.learner.evaluation import evaluate_tasks
from tmln.methods.replay import Reservoir
from tmln.seeds import seed_of
from tmln.streams import Samples


def blobs(k: int, count: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    centres = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(5))
    y = torch.randint(2, (count,), generator=generator) + 2 * k
    return centres[y] + torch.randn(count, 5, generator=generator), y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 6))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_naive_is_a_hand_written_loop() -> None:
    """Bit for bit: the same order, the same steps, momentum reset at the boundary."""
    learner = Learner(network(), "naive", lr=0.05, batch_size=16, seed=3)
    by_hand = network()
    order = torch.Generator().manual_seed(seed_of(3, "order"))
    for k in range(2):
        x, y = blobs(k)
        learner.learn((x, y), epochs=2)
        optimizer = torch.optim.SGD(by_hand.parameters(), 0.05, momentum=0.9)
        for _ in range(2):
            for rows in torch.randperm(len(x), generator=order).split(16):
                optimizer.zero_grad()
                F.cross_entropy(by_hand(x[rows]), y[rows]).backward()
                optimizer.step()
    assert torch.equal(flat(learner.model), flat(by_hand))


def test_the_three_lines_of_a_newcomer() -> None:
    learner = Learner(network(), method="tmln", lr=0.01, batch_size=16, seed=0)
    for k in range(3):
        learner.learn(TensorDataset(*blobs(k)), epochs=10)
    found = [learner.evaluate(blobs(k, 40)) for k in range(3)]
    assert all(f["accuracy"] > 0.8 for f in found)
    assert learner.classes == (0, 1, 2, 3, 4, 5)


def test_any_combination_by_name() -> None:
    learner = Learner(network(), replay="er", penalty="ewc++", step="tmln")
    assert (learner.replay.name, learner.penalty.name, learner.step.name) == ("er", "ewc++", "tmln")


def test_bytes_stay_bytes_until_the_model_sees_them() -> None:
    x = torch.randint(0, 256, (40, 5), dtype=torch.uint8)
    y = torch.randint(2, (40,))
    seen: list[torch.dtype] = []

    def augment(batch: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(batch.dtype)
        assert isinstance(generator, torch.Generator)
        return batch.float() / 255

    learner = Learner(network(), "er", batch_size=20, augment=augment)
    learner.learn((x, y), epochs=1)
    learner.learn((x, y), epochs=1)
    assert set(seen) == {torch.uint8}
    assert learner.replay.memory is not None
    assert learner.replay.memory.sample(3)[0].dtype == torch.uint8


def test_evaluation_by_hand() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0]]))

        def forward(self, x: Tensor) -> Tensor:
            assert not self.training
            return self.table[x[:, 0].long()]

    model = Fixed().train()
    samples = Samples.of(torch.tensor([[0.0], [1.0], [1.0], [0.0]]), torch.tensor([0, 1, 2, 0]))
    found = evaluate(model, samples, lambda x: x, batch_size=3)
    assert found["accuracy"] == 0.75
    rows = model.table[torch.tensor([0, 1, 1, 0])]
    assert found["loss"] == pytest.approx(F.cross_entropy(rows, torch.tensor([0, 1, 2, 0])).item())
    assert model.training
    assert evaluate(model, samples, lambda x: x, open_classes=[0, 1])["accuracy"] == 0.75
    with pytest.raises(ValueError, match="empty"):
        evaluate(model, Samples.of(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long)), lambda x: x)


def test_masking_closes_what_was_not_met() -> None:
    learner = Learner(network(), "naive", logit_mask="seen", batch_size=16)
    head = learner.model[2].weight  # type: ignore[index]
    before = head.detach().clone()
    learner.learn(blobs(0), epochs=1)
    assert torch.equal(head[2:], before[2:])  # unmet classes got no gradient
    assert not torch.equal(head[:2], before[:2])
    plain = Learner(network(), "naive", batch_size=16)
    plain.learn(blobs(0), epochs=1)
    assert not torch.equal(plain.model[2].weight[2:], before[2:])  # type: ignore[index]


def test_a_loss_that_is_no_number_stops_before_the_step() -> None:
    x, y = blobs(0)
    learner = Learner(network(), "tmln", batch_size=60)
    before = copy.deepcopy(learner.model.state_dict())
    x[7, 2] = float("nan")
    broken = Samples.of(x, y)
    with pytest.raises(Diverged, match=r"loss is nan in task 1, epoch 1, step 1: the batch of 60 .*not finite"):
        learner.learn(broken)
    assert all(torch.equal(v, before[k]) for k, v in learner.model.state_dict().items())


def test_steps_that_are_too_long_say_so() -> None:
    learner = Learner(network(), "naive", lr=1e20, batch_size=20)
    with pytest.raises(Diverged, match=r"batch of 20\): the steps are too long \(lr 1e\+20"):
        learner.learn(blobs(0), epochs=5)


@pytest.mark.slow
def test_a_compiled_training_pass_learns_the_same() -> None:
    losses: list[list[float]] = []
    for compiled in (False, True):
        losses.append([])
        learner = Learner(network(), "tmln", batch_size=20, compile=compiled)
        if compiled:
            learner.trained.forward = torch.compile(learner.model, backend="eager")  # type: ignore[assignment]
        for k in range(2):
            learner.learn(blobs(k), on_step=lambda epoch, step, loss: losses[-1].append(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_joint_learns_the_union_from_the_beginning() -> None:
    learner = Learner(network(), "joint", lr=0.05, batch_size=16)
    for k in range(3):
        learner.learn(blobs(k), epochs=5)
    assert all(learner.evaluate(blobs(k, 40))["accuracy"] > 0.85 for k in range(3))


def test_data_that_flows_without_tasks() -> None:
    learner = Learner(network(), "er", settings={"replay.fill": "online"}, batch_size=16)
    for k in range(3):
        learner.learn(blobs(k), boundary=False)
    assert learner.replay.memory is not None
    assert learner.replay.memory.seen == 180
    for method, words in (
        ("tmln", "'er' and 'tmln' needs"),
        ("ewc++", "'ewc[+][+]' needs"),
        ("joint", "starting afresh at every task needs"),
        ("independent", "starting afresh at every task needs"),
    ):
        bound = Learner(network(), method)
        with pytest.raises(ValueError, match=words):
            bound.learn(blobs(0), boundary=False)
        assert bound.classes == ()


def test_bad_calls() -> None:
    learner = Learner(network())
    with pytest.raises(ValueError, match="epochs"):
        learner.learn(blobs(0), epochs=0)


@pytest.mark.parametrize(("fill", "offered"), [("end", 60), ("online", 60), ("every-epoch", 180)])
def test_a_memory_is_offered_each_sample_as_often_as_asked(fill: str, offered: int) -> None:
    """'online' is the first epoch only: replay must be told which one it is."""
    learner = Learner(network(), "er", settings={"replay.fill": fill}, batch_size=16)
    learner.learn(blobs(0), epochs=3)
    assert learner.replay.memory is not None
    assert learner.replay.memory.seen == offered


def test_a_memory_is_drawn_by_the_learners_seed() -> None:
    kept: list[Tensor] = []
    for seed in (0, 1):
        learner = Learner(network(), "er", settings={"replay.capacity": 5}, batch_size=16, seed=seed)
        x, y = blobs(0)
        learner.learn((x, y))
        by_hand = Reservoir(5, seed_of(seed, "replay"))
        by_hand.add(x, y)
        assert learner.replay.memory is not None
        kept.append(learner.replay.memory.draw(5)["x"])
        assert torch.equal(kept[-1], by_hand.draw(5)["x"])
    assert not torch.equal(kept[0], kept[1])


def test_accuracy_among_the_tasks_own_classes_by_hand() -> None:

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row = nn.Parameter(torch.tensor([[1.0, 0.0, 2.0]]))

        def forward(self, x: Tensor) -> Tensor:
            return self.row.expand(len(x), 3)

    samples = Samples.of(torch.zeros(4, 1), torch.tensor([0, 0, 1, 2]))
    (found,) = evaluate_tasks(Fixed(), [(samples, (0, 1))], lambda x: x)
    assert found["accuracy"] == 0.25  # always class 2
    assert found["masked_accuracy"] == 0.5  # always class 0


class Slow(Dataset[tuple[Tensor, int]]):
    """Read item by item, as files are: goes through the thread that reads ahead."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.targets = x, y.tolist()
        self.readers: set[str] = set()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.readers.add(threading.current_thread().name)
        return self.x[row], self.targets[row]


def test_reading_ahead_changes_nothing() -> None:
    slow, plain = Slow(*blobs(0)), blobs(0)
    one, two = Learner(network(), "er", batch_size=16), Learner(network(), "er", batch_size=16)
    one.learn(slow, epochs=2)
    two.learn(plain, epochs=2)
    assert "tmln-prefetch" in slow.readers
    assert torch.equal(flat(one.model), flat(two.model))


def test_steps_are_reported() -> None:
    seen: list[tuple[int, int, float]] = []
    Learner(network(), batch_size=30).learn(blobs(0), epochs=2, on_step=lambda *step: seen.append(step))
    assert [(epoch, step) for epoch, step, _ in seen] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(loss > 0 for _, _, loss in seen)


def test_testing_all_tasks_is_one_forward_pass_over_them() -> None:
    model, seen = network(), []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    tests = [(Samples.of(*blobs(k, 30 + k)), (0, 1)) for k in range(3)]
    evaluate_tasks(model, tests, lambda x: x, batch_size=16)
    assert sum(seen) == 30 + 31 + 32
