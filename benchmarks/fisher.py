"""Compare the diagonal Fisher with training passes, and with a loop and vmap on every network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from tests.zoo import ZOO
from torch import Tensor, nn

from benchmarks.timing import Line, best_times
from tmln.curvature import diagonal_fisher
from tmln.curvature.batches import read_batch
from tmln.curvature.functional import LoopPass, VmapPass
from tmln.curvature.likelihoods import class_log_likelihood
from tmln.models import make_model

SAMPLES = 500


def training_passes(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    def run() -> None:
        model.train()
        for start in range(0, len(x), 128):
            model.zero_grad()
            F.cross_entropy(model(x[start : start + 128]), y[start : start + 128]).backward()

    return run


def fisher(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], object]:
    return lambda: diagonal_fisher(model, [(x, y)])


def by_hand(
    kind: type[LoopPass] | type[VmapPass], model: nn.Module, x: Tensor, y: Tensor, chunk: int
) -> Callable[[], object]:
    def run() -> object:
        model.eval()
        squares = kind(model, set(model.parameters()), class_log_likelihood)
        return [squares(part) for part in read_batch((x, y)).chunks(chunk)]

    return run


def lines() -> Iterator[Line]:
    torch.manual_seed(0)
    for width, rounds in ((20, 4), (64, 2)):
        model = make_model("resnet18", (3, 32, 32), 100, width=width)
        x = torch.randn(SAMPLES, 3, 32, 32).to(memory_format=torch.channels_last)
        y = torch.randint(100, (SAMPLES,))
        runs = {"train": training_passes(model, x, y), "fisher": fisher(model, x, y)}
        best = best_times(runs, rounds)
        ratio = best["fisher"] / best["train"]
        yield Line(f"Fisher of {SAMPLES} samples / training passes, ResNet18 width {width}", ratio, 2.0)
    for name, case in ZOO.items():
        model = case.make()
        x, y = case.draw(SAMPLES)
        runs = {"fisher": fisher(model, x, y), "loop": by_hand(LoopPass, model, x, y, SAMPLES)}
        if case.strategy != "loop":
            for chunk in (16, 125, SAMPLES):
                runs[f"vmap {chunk}"] = by_hand(VmapPass, model, x, y, chunk)
        best = best_times(runs, 5)
        mine = best.pop("fisher")
        fastest = min(best, key=lambda key: best[key])
        yield Line(
            f"Fisher by {case.strategy} / fastest of loop and vmap ({fastest}), {name}", mine / best[fastest], 1.0
        )
