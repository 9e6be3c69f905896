"""The command that says what a run would cost at any size, by the fitted cost model: tmln forecast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.options import Method, Parts, What
from tmln.cli.say import say

if TYPE_CHECKING:
    from tmln.fleet.costs import Rates, Size

LEAST = 1e6  # bytes that are told
WORTH = 0.005  # of the time: what is less is not shown


def forecast(
    method: Method = None,
    what: What = What(),
    parts: Parts = Parts(),
    parameters: Annotated[
        float | None, typer.Option(min=1, help="As if the network had so many, e.g. 1e9; its work grows alike.")
    ] = None,
    capacity: Annotated[int | None, typer.Option(min=0, help="As if the memory held so many samples.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="As if there were so many tasks like these.")] = None,
    ranks: Annotated[int, typer.Option(min=1, help="Devices that share each batch.")] = 1,
    sharded: Annotated[bool, typer.Option("--sharded", help="Weights and their state in shards (FSDP).")] = False,
    speed: Annotated[
        float | None, typer.Option(min=0, help="Times this machine's core that a device computes, e.g. 1000.")
    ] = None,
    bandwidth: Annotated[float | None, typer.Option(min=0, help="Of the network, bytes a second, e.g. 2e10.")] = None,
) -> None:
    """What a run costs, term by term, here or at another size: time, memory, network, and what to set.

    \b
    Example:
      tmln forecast --benchmark split-digits --parameters 1e9 --capacity 10000000 --tasks 1000 --ranks 256 --sharded
    """
    from tmln.fleet.costs import read_rates

    (config,) = what.configs([method], seeds=1, parts=parts)
    rates, said = read_rates()
    size = as_if(size_of(config), parameters, capacity, tasks, ranks, sharded)
    for line in lines(size, faster(rates, speed, bandwidth)):
        say(line)
    for part, errors in said["errors"]["held out"].items():
        say(
            f"a {part} of networks that the fit had not seen was off by {100 * _mean(errors):.0f}% in the mean, "
            f"{100 * max(map(abs, errors.values())):.0f}% at most ({said['machine']['processor']}, one thread)"
        )


def size_of(config: Any) -> Size:
    """Of a run as it is configured: counted, nothing is trained; activations are found with two samples."""
    from tmln.fleet.costs import Size
    from tmln.fleet.crew import works_of
    from tmln.lab.build import learner_of, stream_of
    from tmln.lab.footprint import footprint

    stream = stream_of(config)
    learner = learner_of(config, stream)
    need, full = footprint(learner, stream), config.resolved()
    dense, conv = works_of(config)
    memory = learner.replay.memory
    data, sample = stream[0].train, stream[0].train.gather(_first())[0]
    terms = learner.recipe.holds() or []
    held = 0 if memory is None else int(memory.capacity)
    curved = any("fisher" in term.name for term in terms)
    return Size(
        sum(p.numel() for p in learner.model.parameters()),
        dense + conv,
        conv / max(dense + conv, 1.0),
        learner.batch_size,
        need.rows - learner.batch_size,
        sample.numel() * sample.element_size(),
        need.sample,
        sum(1 for module in learner.model.modules() if not list(module.children())),
        held,
        (held or len(data)) if curved else 0,
        len(stream),
        sum(len(task.train) for task in stream) // len(stream),
        sum(len(task.test) for task in stream) // len(stream),
        int(full["epochs"]),
        sum(term.times for term in terms if term.unit in "NW"),
    )


def as_if(
    size: Size, parameters: float | None, capacity: int | None, tasks: int | None, ranks: int, sharded: bool
) -> Size:
    """The same at another size: multiply-adds grow as the parameters do, activations as their square root."""
    if parameters is not None:
        grown = parameters / max(size.parameters, 1)
        size = replace(
            size,
            parameters=int(parameters),
            work=size.work * grown,
            activations=int(size.activations * grown**0.5),
        )
    if capacity is not None:
        size = replace(size, capacity=capacity, fisher=capacity if size.fisher else 0)
    return replace(size, tasks=tasks or size.tasks, ranks=ranks, sharded=sharded)


def faster(rates: Rates, speed: float | None, bandwidth: float | None) -> Rates:
    """Of another device: multiply-adds and bytes so many times as fast, calls as here."""
    if speed:
        names = (
            "dense",
            "conv",
            "activation",
            "weights",
            "fisher_dense",
            "fisher_conv",
            "fisher_activation",
            "boundary",
        )
        rates = replace(rates, **{name: getattr(rates, name) / speed for name in names})
    return replace(rates, bandwidth=bandwidth) if bandwidth else rates


def lines(size: Size, rates: Rates) -> Iterator[str]:
    """What is trained, each term that counts, the sums, and what to set about the largest."""
    from tmln.fleet.costs import costs, held, seconds
    from tmln.fleet.standings import duration
    from tmln.lab.footprint import shown

    found = costs(size, rates)
    whole, kept = seconds(found), held(found)
    yield (
        f"{size.parameters:,} parameters, {size.batch} + {size.replay} samples a step, a memory of {size.capacity:,}, "
        f"{size.tasks:,} tasks of {size.steps:,} steps, {size.ranks} rank{'s' * (size.ranks != 1)}"
        f"{', sharded' if size.sharded else ''}"
    )
    for cost in found:
        if cost.total > WORTH * whole or cost.held > max(LEAST, 0.05 * kept):
            share = f"{100 * cost.total / whole:5.1f}% of the time" if cost.times else " " * 18
            each = f", {1e3 * cost.seconds:.3g} ms x {cost.times:,.0f}" if cost.times else ""
            bytes_ = f", holds {shown(cost.held)}" if cost.held > LEAST else ""
            sent = f", sends {shown(cost.sent)}" if cost.sent and cost.times else ""
            yield f"  {share}  {cost.name}{each}{sent}{bytes_}"
    yield f"in all about {duration(whole)}, {shown(kept)} of memory a rank"
    largest = max(found, key=lambda cost: cost.held)
    for what, cost in (("time", found[0]), ("memory", largest)):
        if cost.remedy and (what == "time" or cost.held > LEAST):
            yield f"most {what}: {cost.name}; what helps: {cost.remedy}"


def _mean(errors: dict[str, float]) -> float:
    return sum(map(abs, errors.values())) / len(errors)


def _first() -> Any:
    import torch

    return torch.arange(1)
