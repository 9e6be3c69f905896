"""TMLN in Lightning: a callback keeps the memory and the boundaries, and each task is a call of fit."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import tmln
from tmln.integrations.lightning import Continual
from tmln.streams import make_stream


class Digits(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.flatten(1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return tmln.TMLN(self.parameters(), lr=0.01)


def main(epochs: int = 5) -> list[float]:
    torch.manual_seed(0)
    stream, model, continual = make_stream("split-digits"), Digits(), Continual(memory=500)
    for task in stream:
        data = DataLoader(TensorDataset(stream.prepare(task.train.x), task.train.y), batch_size=32, shuffle=True)
        pl.Trainer(
            max_epochs=epochs, accelerator="cpu", callbacks=[continual], logger=False, enable_checkpointing=False
        ).fit(model, data)
    return [float((model.eval()(stream.prepare(t.x)).argmax(1) == t.y).float().mean()) for t in stream.tests]


if __name__ == "__main__":
    print("accuracy on each task after the last:", main())
