"""Avalanche at the work of ``loop.py``, in an environment of its own; prints the best seconds of a few rounds."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive, Replay
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision import transforms


def network(module: str, name: str) -> Any:
    """A network of ours, from its file: tmln is not installed here."""
    path = Path(__file__).parents[1] / "src/tmln/models" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


class Images(Dataset[Any]):
    """Stored as Pillow images or tensors, transformed one by one, as Avalanche's own data sets are."""

    def __init__(self, x: list[Any], y: Tensor, transform: Callable[[Any], Tensor] | None) -> None:
        self.x, self.targets, self.transform = x, y.tolist(), transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        x = self.x[index]
        return (self.transform(x) if self.transform else x), self.targets[index]


def as_avalanche(data: Images) -> AvalancheDataset[Any]:
    labels = DataAttribute(data.targets, "targets")
    zeros = DataAttribute([0] * len(data), "targets_task_labels", use_in_getitem=True)
    return as_classification_dataset(AvalancheDataset([data], data_attributes=[labels, zeros]))


def cifar() -> Callable[[], None]:
    to_image = transforms.ToPILImage()
    jitter = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=63 / 255),
            transforms.ToTensor(),
            transforms.Normalize((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        ]
    )
    torch.manual_seed(0)
    parts = []
    for k, size in enumerate((500, 640)):
        raw = torch.randint(0, 256, (size, 3, 32, 32), dtype=torch.uint8)
        parts.append(as_avalanche(Images([to_image(x) for x in raw], torch.arange(size) % 10 + 10 * k, jitter)))
    model = network("resnet", "ReducedResNet18")(100, 20).to(memory_format=torch.channels_last)
    strategy = make(Replay, model, 128, 1, mem_size=500)
    experiences = benchmark_from_datasets(train=parts, test=parts).train_stream
    strategy.train(experiences[0])
    return lambda: strategy.train(experiences[1])


def digits(method: str) -> Callable[[], None]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = (torch.tensor(found.images).float().unsqueeze(1) / 16 - 0.3052) / 0.3760
    y = torch.tensor(found.target)
    train: list[Any] = []
    test: list[Any] = []
    for k in range(5):
        rows = ((y == 2 * k) | (y == 2 * k + 1)).nonzero().flatten()
        held = torch.arange(len(rows)) % 5 == 4
        for wanted, place in ((~held, train), (held, test)):
            place.append(as_avalanche(Images(list(x[rows[wanted]]), y[rows[wanted]], None)))
    benchmark = benchmark_from_datasets(train=train, test=test)

    def run() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        kind, more = (Replay, {"mem_size": 500}) if method == "er" else (Naive, {})
        strategy = make(kind, model, 32, 3, **more)
        for experience in benchmark.train_stream:
            strategy.train(experience)
            strategy.eval(benchmark.test_stream)

    return run


def make(kind: Any, model: nn.Module, batch: int, epochs: int, **more: Any) -> Any:
    return kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.01, momentum=0.9),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=batch,
        train_epochs=epochs,
        eval_mb_size=512,
        evaluator=EvaluationPlugin(accuracy_metrics(experience=True), loss_metrics(experience=True), loggers=[]),
        **more,
    )


def main(kind: str) -> None:
    if kind != "cifar":
        torch.set_num_threads(1)
    run = cifar() if kind == "cifar" else digits(kind.removeprefix("digits-"))
    run()
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    print(best)


if __name__ == "__main__":
    main(sys.argv[1])
