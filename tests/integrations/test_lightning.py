"""Lightning's own trainer, tasks of two classes of points, and a module of some lines."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tmln
from tmln.integrations.lightning import Continual

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


class Module(pl.LightningModule):
    """A small classifier, by TMLN unless told otherwise."""

    def __init__(self, kind: Any = tmln.TMLN, lr: float = 0.02, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 4))
        self.kind, self.lr = kind, lr
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x)
        return found

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        self.sizes.append(len(batch[0]))
        return self.loss(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return self.kind(self.parameters(), lr=self.lr)


class MeanSquares(Module):
    """Its loss is none of a softmax."""

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(output, F.one_hot(y, 4).float())


def test_a_callback_that_no_trainer_got_says_so(tmp_path: Path) -> None:
    used, unused = Continual(memory=6), Continual(memory=6)
    trainer(tmp_path, used).fit(Module(), loader(0))
    with pytest.warns(UserWarning, match="never given to a Trainer"):
        del unused
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "this Continual")
        del used
        gc.collect()


class InOrder(DataLoader[Any]):
    """A loader that can say where it is and go on from there."""

    served = 0

    def __iter__(self) -> Any:
        start = self.served % len(self)
        for number, batch in enumerate(super().__iter__()):
            if number >= start:
                self.served = number + 1
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"served": self.served}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.served = state["served"]


def points(task: int, count: int = 24) -> TensorDataset:
    generator = torch.Generator().manual_seed(task)
    y = torch.arange(count) % 2 + 2 * task
    centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    return TensorDataset(centres[y] + 0.3 * torch.randn(count, 2, generator=generator), y)


def loader(task: int) -> DataLoader[Any]:
    return DataLoader(points(task), batch_size=8)


def trainer(folder: Path, *callbacks: pl.Callback, epochs: int = 2, **options: Any) -> pl.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=list(callbacks),
        **{**quiet, "enable_checkpointing": saves, **options},
    )


def state_of(module: Module, optimizer: Any) -> list[Tensor]:
    kept = [value for p in module.parameters() for _, value in sorted(optimizer.state[p].items())]
    return [*(p.detach().clone() for p in module.parameters()), *(v for v in kept if isinstance(v, Tensor))]


def test_two_fits_are_the_loop_by_hand(tmp_path: Path) -> None:
    """The README's loop, with the same draws: to the bit, over a new trainer and a new optimizer."""
    module, continual = Module(), Continual(memory=10, seed=3)
    for task in range(2):
        found = trainer(tmp_path, continual)
        found.fit(module, loader(task))
    by_hand, memory = Module(), tmln.Reservoir(10, 3)
    optimizer = tmln.TMLN(by_hand.parameters(), lr=0.02)
    for task in range(2):
        coming = tmln.Reservoir(10, 3)
        coming.load_state_dict(memory.state_dict())
        for epoch in range(2):
            for batch in loader(task):
                if not epoch:
                    coming.add(list(batch))
                if len(memory):
                    batch = [torch.cat(pair) for pair in zip(batch, memory.sample(8), strict=True)]
                optimizer.zero_grad()
                F.cross_entropy(by_hand(batch[0]), batch[1]).backward()
                optimizer.step()
        memory = coming
        optimizer.consolidate(tmln.diagonal_fisher(by_hand, memory.batches(128)))
    for got, wanted in zip(state_of(module, found.optimizers[0]), state_of(by_hand, optimizer), strict=True):
        assert torch.equal(got, wanted)
    assert module.sizes == [8] * 6 + [16] * 6
    assert "on_after_batch_transfer" not in vars(module)


def test_a_fresh_optimizer_keeps_its_options(tmp_path: Path) -> None:
    module, continual = Module(), Continual(memory=10)
    trainer(tmp_path, continual, epochs=1).fit(module, loader(0))
    module.lr = 0.005
    second = trainer(tmp_path, continual, epochs=1)
    second.fit(module, loader(1))
    assert second.optimizers[0].param_groups[0]["lr"] == 0.005
    assert continual.task_memory.boundaries == 2


@pytest.mark.parametrize("at", [3, 4, 9])  # an epoch's end, the middle of one, and the last step before the boundary
def test_resumes_in_the_middle_to_the_bit(tmp_path: Path, at: int) -> None:
    def learn(stop: bool) -> tuple[Module, pl.Trainer]:
        module, continual = Module(), Continual(memory=10)
        trainer(tmp_path, continual, epochs=1).fit(module, loader(0))
        data = InOrder(points(1), batch_size=8)
        if not stop:
            whole = trainer(tmp_path, continual, epochs=3)
            whole.fit(module, data)
            return module, whole
        keep = ModelCheckpoint(tmp_path, filename="half", every_n_train_steps=at, save_top_k=-1)
        trainer(tmp_path, continual, keep, max_steps=at + 1, epochs=3).fit(module, data)
        fresh, again = Module(), Continual(memory=10)
        rest = trainer(tmp_path, again, epochs=3)
        rest.fit(fresh, InOrder(points(1), batch_size=8), ckpt_path=tmp_path / "half.ckpt")
        assert again.memory.seen == 48
        return fresh, rest

    (module, done), (other, rest) = learn(False), learn(True)
    pairs = zip(state_of(module, done.optimizers[0]), state_of(other, rest.optimizers[0]), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert done.global_step == rest.global_step == 9


def test_a_checkpoint_of_the_last_step_has_its_boundary_to_come(tmp_path: Path) -> None:
    """Nothing is left to train, and Lightning says neither that it starts nor that it ends; ``on_fit_end`` does it."""
    states, seen = [], []
    for stop in (False, True):
        module, continual = Module(), Continual(memory=10)
        trainer(tmp_path, continual, epochs=1).fit(module, loader(0))
        keep = ModelCheckpoint(tmp_path, filename=f"last-{stop}", every_n_train_steps=3, save_top_k=-1)
        done = trainer(tmp_path, continual, keep, max_steps=3, epochs=1)
        done.fit(module, InOrder(points(1), batch_size=8))
        if stop:
            module, continual = Module(), Continual(memory=10)
            done = trainer(tmp_path, continual, max_steps=3, epochs=1)
            done.fit(module, InOrder(points(1), batch_size=8), ckpt_path=tmp_path / "last-True.ckpt")
            assert module.sizes == []  # not a step
        states.append(state_of(module, done.optimizers[0]))
        seen.append(
            (continual.task_memory.boundaries, continual.memory.seen, continual.task_memory.optimizer_state is not None)
        )
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))
    assert seen == [(2, 48, True)] * 2


def test_the_next_task_in_a_new_process(tmp_path: Path) -> None:
    module, continual = Module(), Continual(memory=10)
    first = trainer(tmp_path, continual, epochs=1)
    first.fit(module, loader(0))
    first.save_checkpoint(tmp_path / "first.ckpt")
    again, other = Continual(memory=10), Module()
    again.restore(tmp_path / "first.ckpt")
    other.load_state_dict(module.state_dict())
    both = []
    for callback, model in ((continual, module), (again, other)):
        second = trainer(tmp_path, callback, epochs=1)
        second.fit(model, loader(1))
        both.append(state_of(model, second.optimizers[0]))
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


def test_boundaries_on_a_schedule(tmp_path: Path) -> None:
    module, continual = Module(), Continual(memory=10, every=2)
    trainer(tmp_path, continual, epochs=1).fit(module, loader(0))  # three steps: after two, and at the end
    assert continual.task_memory.boundaries == 2
    assert module.sizes == [8, 8, 16]


def test_any_optimizer_gets_the_replay(tmp_path: Path) -> None:
    module, continual = Module(torch.optim.AdamW), Continual(memory=10, replay=0.5)
    for task in range(2):
        trainer(tmp_path, continual, epochs=1).fit(module, loader(task))
    assert module.sizes == [8] * 3 + [12] * 3
    assert continual.task_memory.boundaries == 0


def test_a_shield_is_never_lost_without_a_word(tmp_path: Path) -> None:
    module, continual = Module(), Continual(memory=10)
    first = trainer(tmp_path, continual, epochs=1)
    first.fit(module, loader(0))
    with pytest.raises(ValueError, match="another shape: its state would be lost"):
        trainer(tmp_path, continual, epochs=1).fit(Module(width=9), loader(1))
    module.kind = torch.optim.SGD
    with pytest.raises(ValueError, match="now given SGD"):
        trainer(tmp_path, continual, epochs=1).fit(module, loader(1))
    again = Continual(memory=10)
    again.load_state_dict(continual.state_dict())
    with pytest.raises(ValueError, match=r"consolidated 1 times.*missing"):
        trainer(tmp_path, again, epochs=1).fit(Module(), loader(1))


@pytest.mark.parametrize(
    ("module", "options", "data", "message"),
    [
        (Module, {}, TensorDataset(torch.randn(8, 2)), "fit|batches must yield"),
        (Module, {}, TensorDataset(torch.randn(8, 2), torch.randn(8, 4)), "say which: log_likelihood="),
        (Module, {}, TensorDataset(torch.randn(8, 2), torch.full((8, 4), 7)), "logits .* over a vocabulary"),
        (MeanSquares, {"log_likelihood": "classes"}, points(0), "MeanSquares's loss is .* by log_likelihood='classes'"),
    ],
)
def test_bad_input_before_a_step(tmp_path: Path, module: Any, options: Any, data: Any, message: str) -> None:
    found = module()
    before = [p.detach().clone() for p in found.parameters()]
    with pytest.raises((ValueError, TypeError), match=message):
        trainer(tmp_path, Continual(memory=10, **options)).fit(found, DataLoader(data, batch_size=8))
    assert all(torch.equal(a, b) for a, b in zip(before, found.parameters(), strict=True))


def test_a_likelihood_that_is_the_loss_passes(tmp_path: Path) -> None:
    continual = Continual(memory=10, log_likelihood="classes")
    trainer(tmp_path, continual, epochs=1).fit(Module(), loader(0))
    assert continual.task_memory.boundaries == 1


def test_other_fields_are_refused_before_a_step(tmp_path: Path) -> None:
    module, continual = Module(), Continual(memory=10)
    trainer(tmp_path, continual, epochs=1).fit(module, loader(0))
    before = [p.detach().clone() for p in module.parameters()]
    data = TensorDataset(torch.randn(8, 2), torch.zeros(8, dtype=torch.long), torch.zeros(8))
    with pytest.raises(ValueError, match="samples have the fields 0, 1; got 0, 1, 2"):
        trainer(tmp_path, continual).fit(module, DataLoader(data, batch_size=8))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="replay=-1"):
        Continual(replay=-1)
    with pytest.raises(ValueError, match="every=0"):
        Continual(every=0)
