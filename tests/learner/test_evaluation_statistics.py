"""What the testing pass counts: against loops over samples, singular values and hand-made networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tmln.evaluation_counts import BINS, CALIBRATION, calibration_error
from tmln.learner.evaluation_statistics import Liveliness, Tally, dormant_share, effective_rank
from tmln.models import make_model


def test_a_tally_against_a_loop_over_samples() -> None:
    draw = torch.Generator().manual_seed(0)
    classes, tally = 4, Tally(seen=2)
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    confidences, rights, predicted = [], [], []
    for task, many in ((0, 7), (0, 5), (1, 6), (2, 9)):
        outputs = 3 * torch.randn(many, classes, generator=draw)
        labels = torch.randint(classes, (many,), generator=draw)
        outputs[0, 1:] = -math.inf  # closed classes
        tally(task, outputs, labels)
        for output, label in zip(outputs, labels, strict=True):
            answer = int(output.argmax())
            confusion[int(label), answer] += 1
            predicted.append(answer)
            if task < 2:
                confidences.append(float(output.softmax(0)[answer]))
                rights.append(answer == int(label))
    assert torch.equal(tally.confusion, confusion)
    assert torch.cat(tally.predicted).tolist() == predicted
    error = 0.0
    for b in range(BINS):
        inside = [k for k, c in enumerate(confidences) if b / BINS < c <= (b + 1) / BINS]
        if inside:
            gap = sum(rights[k] for k in inside) / len(inside) - sum(confidences[k] for k in inside) / len(inside)
            error += len(inside) / len(confidences) * abs(gap)
    rows = dict(zip(CALIBRATION, [[row] for row in tally.bins.tolist()], strict=True))
    assert calibration_error(rows) == pytest.approx(error)


def test_dormant_units_by_hand() -> None:
    # of the first layer's mean 1.0 the threshold is 0.025; a silent layer is dormant whole
    activities = [torch.tensor([2.0, 1.9, 0.075, 0.025]), torch.zeros(3), torch.ones(1)]
    assert dormant_share(activities) == 4 / 8


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_against_singular_values(rank: int) -> None:
    draw = torch.Generator().manual_seed(rank)
    features = torch.randn(40, rank, generator=draw) @ torch.randn(rank, 8, generator=draw)
    values = torch.linalg.svdvals(features.double())[:rank]
    share = values / values.sum()
    wanted = float(torch.exp(-(share * share.log()).sum()))
    gram = features.double().T @ features.double()
    assert effective_rank(gram) == pytest.approx(wanted, rel=1e-4)
    assert effective_rank(gram) <= rank + 1e-3
    assert effective_rank(torch.eye(5)) == pytest.approx(5)
    assert math.isnan(effective_rank(torch.zeros(2, 2)))


class Shared(nn.Module):
    """A stem, two layers on one input, a head: 4 units before the two, 3 before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Linear(2, 4), nn.Linear(4, 3), nn.Linear(4, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(x))
        out: Tensor = self.head(torch.relu(self.left(hidden) + self.right(hidden)))
        return out


def test_units_are_what_layers_are_given_and_count_once() -> None:
    model = Shared()
    with torch.no_grad():
        model.stem.weight.fill_(1.0)
        model.stem.bias.copy_(torch.tensor([0.0, 0.0, 0.0, -1e9]))  # one of four is dead
        for layer in (model.left, model.right):
            layer.weight.fill_(1.0)
            layer.bias.copy_(torch.tensor([0.0, -1e9, -1e9]))  # two of three are
        live = Liveliness()
        with live.watch(model):
            for _ in range(3):
                model(torch.ones(5, 2))
        model(torch.ones(5, 2) * math.nan)  # nobody looks any more
    assert sorted(len(sums) for sums in live.sums.values()) == [3, 4]
    assert live.dormant == 3 / 7
    assert live.rank == pytest.approx(1.0, abs=1e-3)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18"])
def test_our_networks_have_units_and_features(name: str) -> None:
    torch.manual_seed(0)
    model = make_model(name, (3, 16, 16), 5, **({"width": 4} if name == "resnet18" else {})).eval()
    live = Liveliness()
    x = torch.randn(6, 3, 16, 16)
    with torch.no_grad(), live.watch(model):
        watched = model(x)
    with torch.no_grad():
        assert torch.equal(model(x), watched)
    assert live.dormant is not None and 0 <= live.dormant < 0.5  # noqa: PT018
    assert live.rank is not None and 1 <= live.rank <= 6  # noqa: PT018


def test_a_network_of_one_layer_has_neither() -> None:
    live = Liveliness()
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with live.watch(model):
        model(torch.ones(2, 2, 2))
    assert live.dormant is None
    assert live.rank is None
