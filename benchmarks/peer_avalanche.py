"""Run the work of ``loop.py`` with Avalanche, in its own environment: a round for each line read.

As its documentation has it: ``nc_benchmark`` over a data set of torchvision's kind with its transforms, the strategy
with its own evaluator and log, testing at the batch size of training. With ``lean`` it is given what a reader of its
source could add: weights in channels_last, an evaluator that prints nothing, data sets without the benchmark's layers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks import benchmark_from_datasets, nc_benchmark
from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive, Replay
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import transforms

JITTER = transforms.Compose(
    [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(brightness=63 / 255),
        transforms.ToTensor(),
        transforms.Normalize((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    ]
)


def network(module: str, name: str) -> Any:
    """Load a network of tmln from its file: tmln is not installed here."""
    path = Path(__file__).parents[1] / "src/tmln/models" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


class Samples(Dataset[Any]):
    """As torchvision's data sets: arrays become Pillow images, one by one; tensors stay what they are."""

    def __init__(self, x: Any, targets: list[int], transform: Callable[[Any], Any] | None = None) -> None:
        self.x, self.targets, self.transform = x, targets, transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        x = self.x[index]
        x = Image.fromarray(x) if isinstance(x, np.ndarray) else x
        return (self.transform(x) if self.transform else x), self.targets[index]


def plain(data: Samples) -> AvalancheDataset[Any]:
    labels = DataAttribute(data.targets, "targets")
    zeros = DataAttribute([0] * len(data), "targets_task_labels", use_in_getitem=True)
    return as_classification_dataset(AvalancheDataset([data], data_attributes=[labels, zeros]))


def tasks(train: Samples, test: Samples, count: int, lean: bool, transform: Any = None) -> Any:
    """Make class-incremental experiences in ascending order of classes."""
    classes = sorted(set(train.targets))
    if not lean:
        order = {"fixed_class_order": classes, "train_transform": transform, "eval_transform": transform}
        return nc_benchmark(train, test, n_experiences=count, task_labels=False, **order)
    each = len(classes) // count
    parts: list[list[Any]] = [[], []]
    for k in range(count):
        for data, place in zip((train, test), parts, strict=True):
            rows = [i for i, y in enumerate(data.targets) if y in classes[k * each : (k + 1) * each]]
            place.append(plain(Samples([data.x[i] for i in rows], [data.targets[i] for i in rows], transform)))
    return benchmark_from_datasets(train=parts[0], test=parts[1])


def make(kind: Any, model: nn.Module, batch: int, epochs: int, lean: bool, **more: Any) -> Any:
    if lean:
        quiet = EvaluationPlugin(accuracy_metrics(experience=True), loss_metrics(experience=True), loggers=[])
        more |= {"evaluator": quiet}
    return kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.01, momentum=0.9),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=batch,
        train_epochs=epochs,
        eval_mb_size=512 if lean else batch,
        **more,
    )


def cifar(lean: bool) -> Callable[[], None]:
    random = np.random.RandomState(0)
    sizes = (500, 640)
    labels = [10 * k + i % 10 for k, size in enumerate(sizes) for i in range(size)]
    data = Samples(random.randint(0, 256, (sum(sizes), 32, 32, 3), dtype=np.uint8), labels)
    torch.manual_seed(0)
    model = network("resnet", "ReducedResNet18")(100, 20)
    if lean:
        model = model.to(memory_format=torch.channels_last)
    strategy = make(Replay, model, 128, 1, lean, mem_size=500)
    experiences = tasks(data, data, 2, lean, JITTER).train_stream
    strategy.train(experiences[0])
    return lambda: strategy.train(experiences[1])


def digits(method: str, lean: bool) -> Callable[[], None]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = (torch.tensor(found.images).float().unsqueeze(1) / 16 - 0.3052) / 0.3760
    held = torch.arange(len(x)) % 5 == 4
    train, test = (Samples(x[rows], torch.tensor(found.target)[rows].tolist()) for rows in (~held, held))
    benchmark = tasks(train, test, 5, lean)

    def run() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        kind, more = (Replay, {"mem_size": 500}) if method == "er" else (Naive, {})
        strategy = make(kind, model, 32, 3, lean, **more)
        for experience in benchmark.train_stream:
            strategy.train(experience)
            strategy.eval(benchmark.test_stream)

    return run


def main(kind: str, lean: bool) -> None:
    warnings.simplefilter("ignore")
    if kind != "cifar":
        torch.set_num_threads(1)
    answers = sys.stdout
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run = cifar(lean) if kind == "cifar" else digits(kind.removeprefix("digits-"), lean)
        for _ in sys.stdin:
            run()
            print("done", file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "lean" in sys.argv[2:])
