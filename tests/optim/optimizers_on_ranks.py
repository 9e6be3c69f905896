"""What two ranks do together, each case against one process with all samples; run by ``test_ranks.py`` on both."""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from tmln.curvature import Fisher, diagonal_fisher
from tmln.distributed.process_group import gather_full
from tmln.optim import OCAR, TMLN, TMLNKFAC, UPGD

SHARES = (slice(0, 5), slice(5, 12))  # uneven
CASES: list[Callable[[int], None]] = []


def case(function: Callable[[int], None]) -> Callable[[int], None]:
    CASES.append(function)
    return function


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3))


def samples(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 3, generator=generator), torch.randint(3, (12,), generator=generator)


def own(rank: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    x, y = samples(seed)
    return [(x[SHARES[rank]], y[SHARES[rank]])]


def same(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> bool:
    return torch.allclose(gather_full(found), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def alike(model: nn.Module, other: nn.Module) -> bool:
    return all(same(p.detach(), q.detach()) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def equal_on_ranks(values: list[Tensor]) -> bool:
    told: list[Any] = [None, None]
    dist.all_gather_object(told, [gather_full(value.detach()) for value in values])
    return all(torch.equal(a, b) for a, b in zip(*told, strict=True))


def backward(model: nn.Module, seed: int, share: slice = slice(None)) -> None:
    """Of the mean over all 12 samples; a share's is scaled so that a mean over the two ranks makes it that."""
    x, y = samples(seed)
    model.zero_grad()
    scale = 1.0 if share == slice(None) else 2 / 12
    reduction = "mean" if share == slice(None) else "sum"
    (cross_entropy(model(x[share]), y[share], reduction=reduction) * scale).backward()


def tasks(step: Callable[[], None], model: nn.Module, boundary: Callable[[int], Any], share: slice) -> Iterator[Any]:
    for task in range(2):
        for number in range(3):
            backward(model, 10 * task + number, share)
            step()
        yield boundary(task)


def alone(**options: Any) -> tuple[nn.Module, TMLN, list[Any]]:
    """Two tasks in one process, which has all samples."""
    model = network()
    optimizer = TMLN(model.named_parameters(), lr=0.05, **options)

    def boundary(task: int) -> Any:
        return optimizer.consolidate(diagonal_fisher(model, [samples(task)], group="local"), group="local")

    return model, optimizer, list(tasks(optimizer.step, model, boundary, slice(None)))


@case
def the_mean_is_over_the_samples_of_all_ranks(rank: int) -> None:
    model = network()
    expected = diagonal_fisher(model, [samples()], group="local")
    nothing: list[tuple[Tensor, Tensor]] = []
    for batches in (own(rank), [samples()] if rank else nothing, [(x[:4], y[:4]) for x, y in own(rank)] + own(rank)):
        found = diagonal_fisher(model, batches)
        assert equal_on_ranks(list(found.values()))
        if len(batches) < 2:
            assert found.samples == 12
            assert found.strategy == "hooks"
            assert all(same(found[name], expected[name]) for name in expected)
        else:
            assert found.samples == 4 + 5 + 4 + 7
    here = diagonal_fisher(model, own(rank), group="local")
    assert here.samples == len(own(rank)[0][0])
    assert not same(here["0.weight"], expected["0.weight"], 1e-3)
    with pytest.raises(ValueError, match="empty on every rank"):
        diagonal_fisher(model, nothing)


@case
def a_failure_on_one_rank_is_heard_on_all(rank: int) -> None:
    model = network()
    x, y = own(rank)[0]
    with pytest.raises(RuntimeError, match="mat1" if rank else "rank 1 failed, so rank 0 stops too"):
        diagonal_fisher(model, [(x[:, :2] if rank else x, y)])
    optimizer = TMLN(model.parameters())
    backward(model, 0)
    optimizer.step()
    fisher: dict[Tensor, Tensor] = {p: torch.ones_like(p) for p in model.parameters()}
    first = next(model.parameters())
    if rank:
        fisher[first] = torch.full_like(first, -1.0)
    with pytest.raises((RuntimeError, ValueError), match="negative entries"):
        optimizer.consolidate(fisher)
    assert not optimizer.state[first]["sensitivity"].any()


@case
def a_fisher_on_one_rank_alone_is_an_error_at_once(rank: int) -> None:
    model = network()
    optimizer = TMLN(model.parameters())
    backward(model, 0)
    optimizer.step()
    with pytest.raises(RuntimeError, match=f"rank {1 - rank} is in .* while rank {rank} is in .*on every rank"):
        optimizer.consolidate(None if rank else diagonal_fisher(model, [samples()]))
    with pytest.raises((RuntimeError, TypeError), match="consolidate\\(\\) needs the Fisher"):
        optimizer.consolidate(None if rank else diagonal_fisher(model, [samples()], group="local"))


@case
def replicas_stay_equal_over_boundaries(rank: int) -> None:
    expected, _, found = alone(momentum=0.5)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = TMLN(model.named_parameters(), lr=0.05, momentum=0.5)

    def boundary(task: int) -> Any:
        return optimizer.consolidate(diagonal_fisher(model, own(rank, task)))

    got = list(tasks(optimizer.step, model, boundary, SHARES[rank]))
    assert equal_on_ranks(list(model.parameters()))
    assert alike(model, expected)
    for one, other in zip(found, got, strict=True):
        assert [*other[:4]] == pytest.approx([*one[:4]], rel=1e-4)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=r"0\.weight' is not the same on all 2 ranks"):
        optimizer.consolidate(diagonal_fisher(model, own(rank), group="local"))
    assert all(torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True))
    backward(model, 7, SHARES[rank])
    optimizer.step()
    optimizer.consolidate(diagonal_fisher(model, own(rank), group="local"), group="local")


def sharded() -> nn.Sequential:
    model, mesh = network(), init_device_mesh("cpu", (2,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@case
def shards_are_moved_as_the_whole(rank: int) -> None:
    settings: list[dict[str, Any]] = [{}, {"momentum": 0.5, "score_max": "tensor", "clip_norm": 0.05, "foreach": False}]
    for options in settings:
        expected, reference, found = alone(**options)
        model = sharded()
        optimizer = TMLN(model.named_parameters(), lr=0.05, **options)

        def boundary(task: int, model: nn.Module = model, optimizer: TMLN = optimizer) -> Any:
            with torch.no_grad():
                model(samples()[0])  # leaves the outermost unit gathered
            return optimizer.consolidate(diagonal_fisher(model, own(rank, task)))

        got = list(tasks(optimizer.step, model, boundary, SHARES[rank]))
        assert alike(model, expected)
        for p, q in zip(model.parameters(), expected.parameters(), strict=True):
            for key in ("fisher", "sensitivity", "anchor"):
                assert optimizer.state[p][key].placements == p.placements  # type: ignore[attr-defined]
                assert same(optimizer.state[p][key], reference.state[q][key], 1e-4), key
        for one, other in zip(found, got, strict=True):
            assert [*other[:4]] == pytest.approx([*one[:4]], rel=1e-4)
            assert list(other.mass.values()) == pytest.approx(list(one.mass.values()), rel=1e-3)
        assert optimizer.protection()[:2] == pytest.approx(reference.protection()[:2], rel=1e-4)
    _goes_through_a_checkpoint(model, optimizer, rank)


def _goes_through_a_checkpoint(model: nn.Module, optimizer: TMLN, rank: int) -> None:
    folder: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    backward(model, 5, SHARES[rank])
    optimizer.step()
    save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=folder[0])
    other = sharded()
    other.load_state_dict(model.state_dict())
    fresh = TMLN(other.named_parameters(), lr=0.05)
    state = {"optimizer": get_optimizer_state_dict(other, fresh)}
    load(state, checkpoint_id=folder[0])
    set_optimizer_state_dict(other, fresh, state["optimizer"])
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        for key in ("fisher", "sensitivity", "anchor"):
            assert torch.equal(gather_full(optimizer.state[p][key]), gather_full(fresh.state[q][key])), key
        assert same(fresh.path(q), gather_full(optimizer.path(p)))


@case
def a_fisher_of_tensor_parallel_layers(rank: int) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    expected = diagonal_fisher(model, [samples()], group="local")
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    output = model(samples()[0])
    found = diagonal_fisher(model, [samples()] if rank == 0 else [])
    assert found.samples == 12
    for name, value in found.items():
        assert same(value, expected[name]), name
        assert value.placements == found.parameters[name].placements  # type: ignore[attr-defined]
    assert torch.equal(output, model(samples()[0]))  # its hooks are back


@case
def each_rank_its_own_parameters(rank: int) -> None:
    expected, _, found = alone()
    model = nn.parallel.DistributedDataParallel(network())
    zero = ZeroRedundancyOptimizer(model.parameters(), TMLN, lr=0.05)

    def boundary(task: int) -> Any:
        return zero.optim.consolidate(diagonal_fisher(model, own(rank, task)))

    got = list(tasks(zero.step, model, boundary, SHARES[rank]))
    assert alike(model, expected)
    assert [one.peak for one in got] == pytest.approx([one.peak for one in found], rel=1e-4)
    zero.consolidate_state_dict(to=0)


@case
def the_largest_utility_is_that_of_all(rank: int) -> None:
    for variant in ("global", "local"):
        expected = network()
        plain = UPGD(expected.parameters(), lr=0.1, beta_utility=0.9, variant=variant, group="local")
        shards = sharded()
        over = UPGD(shards.parameters(), lr=0.1, beta_utility=0.9, variant=variant)
        split = nn.parallel.DistributedDataParallel(network())
        zero = ZeroRedundancyOptimizer(split.parameters(), UPGD, lr=0.1, beta_utility=0.9, variant=variant, sigma=0.0)
        quiet = network()
        noiseless = UPGD(quiet.parameters(), lr=0.1, beta_utility=0.9, variant=variant, sigma=0.0, group="local")
        for number in range(3):
            whole_batch: list[tuple[nn.Module, Any]] = [(expected, plain), (quiet, noiseless)]
            dealt_out: list[tuple[nn.Module, Any]] = [(shards, over), (split, zero)]
            for model, optimizer in whole_batch:
                backward(model, number)
                optimizer.step()
            for model, optimizer in dealt_out:
                backward(model, number, SHARES[rank])
                optimizer.step()
        assert alike(shards, expected), variant
        assert alike(split, quiet), variant


@case
def factors_are_those_of_all_samples(rank: int) -> None:
    settings: list[dict[str, Any]] = [{"fisher": "mc"}, {"fisher": "exact", "replay_weight": "class_ratio"}]
    for options in settings:
        expected = network()
        reference = OCAR(expected, lr=0.05, update_every=1, group="local", **options)
        model = nn.parallel.DistributedDataParallel(network())
        optimizer = OCAR(model, lr=0.05, update_every=1, **options)
        for number in range(3):
            x, y = samples(number)
            order = torch.tensor([0, 1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11])  # replayed: the last of each rank's
            if options["fisher"] == "exact":
                reference.observe(x[order], y[order], replay=5)
                optimizer.observe(*own(rank, number)[0], replay=(2, 3)[rank])
            else:
                reference.observe(x)
                optimizer.observe(own(rank, number)[0][0])
            backward(expected, number)
            reference.step()
            backward(model, number, SHARES[rank])
            optimizer.step()
        assert alike(model, expected), options
        assert torch.equal(optimizer.kfac.generator.get_state(), reference.kfac.generator.get_state())
        optimizer.observe(samples()[0][: 12 * rank], samples()[1][: 12 * rank])  # one rank has none
        assert equal_on_ranks([factor for pair in optimizer.kfac.factors.values() for factor in pair])
        copy.deepcopy(optimizer)
    with pytest.raises(TypeError, match="lie in shards"):
        OCAR(sharded())


@case
def factors_of_a_boundary_are_those_of_all(rank: int) -> None:
    expected = network()
    reference = TMLNKFAC(expected, lr=0.05, labels="exact", group="local")
    model = network()
    optimizer = TMLNKFAC(model, lr=0.05, labels="exact")
    for one, settings, batches in ((reference, "local", [samples()]), (optimizer, None, own(rank))):
        for number in range(2):
            backward(one.kfac.model, number)
            one.step()
        fisher: Fisher = diagonal_fisher(one.kfac.model, batches, group=settings)  # type: ignore[arg-type]
        one.consolidate(fisher, batches)
        backward(one.kfac.model, 3)
        one.step()
    assert alike(model, expected)
    torch.save(optimizer.state_dict(), io.BytesIO())


def work(rank: int) -> list[str]:
    for one in CASES:
        one(rank)
    return [one.__name__ for one in CASES]
