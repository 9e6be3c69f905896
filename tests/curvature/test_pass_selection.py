"""The choice of a way: right whatever the batching, the attributes and the first samples."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from tests.curvature.test_fisher import assert_same, oracle, settle
from tests.zoo import ZOO, TimeMajor, images, mlp, sequences
from tmln.curvature import diagonal_fisher
from tmln.curvature.batches import batch_signature, concatenate_batches, read_batch
from tmln.curvature.crosscheck import Unsupported
from tmln.curvature.pass_selection import _compare

# Batchings


def cut(x: Tensor, y: Tensor, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1, 6], [1] * 7, [7]], ids=str)
@pytest.mark.parametrize("name", ZOO)
def test_batching_does_not_matter(name: str, sizes: list[int]) -> None:
    case = ZOO[name]
    torch.manual_seed(5)
    model = case.make()
    settle(model, case)
    x, y = case.draw(7)
    fisher = diagonal_fisher(model, cut(x, y, sizes))
    assert_same(fisher, oracle(model, x, y), 1e-5)
    assert (fisher.strategy, fisher.samples) == (case.strategy, 7)


def test_a_single_sample_goes_by_the_loop() -> None:
    model, (x, y) = mlp(), images(3)(1)
    fisher = diagonal_fisher(model, [(x, y)])
    assert_same(fisher, oracle(model, x, y), 1e-5)
    assert (fisher.strategy, fisher.samples) == ("loop", 1)


def test_single_samples_of_many_shapes() -> None:
    torch.manual_seed(0)
    model = TimeMajor()
    samples = [sequences(length)(1) for length in (1, 2, 3, 3, 2, 1, 1)]
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for x, y in samples:
        for name, value in oracle(model, x, y).items():
            expected[name] += value / len(samples)
    assert_same(diagonal_fisher(model, samples), expected, 1e-5)


@pytest.mark.parametrize("lengths", [(1, 4), (4, 1)])
def test_a_way_holds_for_the_shapes_it_was_tried_on(lengths: tuple[int, int]) -> None:
    """With one position, samples and positions cannot be told apart: hooks are right there, and only there."""
    torch.manual_seed(0)
    model = TimeMajor()
    batches = [sequences(length)(6) for length in lengths]
    fishers = [oracle(model, x, y) for x, y in batches]
    expected = {name: (fishers[0][name] + fishers[1][name]) / 2 for name in fishers[0]}
    fisher = diagonal_fisher(model, batches)
    assert_same(fisher, expected, 1e-5)
    assert fisher.strategy == "vmap"
    assert diagonal_fisher(model, [batches[lengths.index(1)]]).strategy == "hooks"


def test_drawn_labels_follow_the_order_of_samples() -> None:
    """Probes, joined ones too, use up no draws."""
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), images(3)(6)
    pairs = [diagonal_fisher(model, cut(x.double(), y, [1] * 6), targets="sampled")]
    generator = torch.Generator().manual_seed(0)
    labels = [torch.multinomial(model(one.double()).softmax(-1), 1, generator=generator)[0] for one in x.split(1)]
    pairs.append(diagonal_fisher(model, [(x.double(), torch.cat(labels))]))
    assert_same(pairs[0], dict(pairs[1]), 1e-10)


def test_batches_of_one_kind_can_be_joined() -> None:
    one = read_batch({"x": torch.ones(1, 3), "table": torch.ones(5, 5), "scale": 2.0, "y": torch.tensor([1])})
    two = read_batch({"x": torch.zeros(2, 3), "table": torch.ones(5, 5), "scale": 2.0, "y": torch.tensor([0, 2])})
    assert batch_signature(one) == batch_signature(two)
    both = concatenate_batches(one, two)
    assert (both.size, both.kwargs["scale"]) == (3, 2.0)
    assert both.kwargs["x"].tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3]
    assert both.kwargs["table"].shape == (5, 5)
    assert both.target.tolist() == [1, 0, 2]
    for other in (
        {"x": torch.ones(1, 4), "table": torch.ones(5, 5), "scale": 2.0},
        {"x": torch.ones(1, 3, dtype=torch.float64), "table": torch.ones(5, 5), "scale": 2.0},
        {"x": torch.ones(1, 3), "table": torch.ones(5, 6), "scale": 2.0},
        {"x": torch.ones(1, 3), "table": torch.ones(5, 5), "scale": 3.0},
        {"z": torch.ones(1, 3), "table": torch.ones(5, 5), "scale": 2.0},
        {"x": torch.ones(1, 3), "table": torch.ones(5, 5), "scale": None},
    ):
        assert batch_signature(read_batch(other | {"y": torch.tensor([1])})) != batch_signature(one)


# Arguments that all samples share


class Placed(nn.Module):
    """Looks up positions, and weights them by a mask [positions, positions], both shared by all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(12, 8), nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.words(x) + self.places(places)
        if mask is not None:
            h = torch.tanh(mask @ h) if mask.dim() == 2 else torch.tanh(h * mask)
        logits: Tensor = self.head(torch.tanh(h * torch.arange(1, 7)[:, None]).mean(1))
        return logits


def slow_fisher(model: nn.Module, batches: Sequence[tuple[Tensor, ...]], shared: int) -> dict[str, Tensor]:
    """One sample at a time; the last ``shared`` inputs go with each of them whole."""
    sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    count = 0
    for *inputs, y in batches:
        own, common = inputs[: len(inputs) - shared], inputs[len(inputs) - shared :]
        for n in range(len(y)):
            log_p = model(*(x[n : n + 1] for x in own), *common).log_softmax(-1)[0, y[n]]
            for (name, _), g in zip(
                model.named_parameters(), torch.autograd.grad(log_p, list(model.parameters())), strict=True
            ):
                sums[name] += g**2
            count += 1
    return {name: value / count for name, value in sums.items()}


POSITIONS = torch.arange(6)
CAUSAL = torch.ones(6, 6, dtype=torch.float64).tril()


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 3])
@pytest.mark.parametrize("sizes", [(6,), (8, 6), (6, 8), (2, 6), (6, 6, 1)], ids=str)
@pytest.mark.parametrize("common", [(POSITIONS,), (POSITIONS, CAUSAL)], ids=["positions", "mask"])
def test_what_all_samples_share_may_be_as_long_as_the_batch(
    common: tuple[Tensor, ...], sizes: tuple[int, ...], chunk_size: int | None
) -> None:
    torch.manual_seed(0)
    model = Placed().double()
    batches = [(torch.randint(12, (size, 6)), *common, torch.randint(3, (size,))) for size in sizes]
    fisher = diagonal_fisher(model, batches, chunk_size=chunk_size)
    assert_same(fisher, slow_fisher(model, batches, len(common)), 1e-10)


def draws_in_pieces_as_whole() -> bool:
    """Does torch draw the same for rows whether they come together or not? 2.6 does not, 2.13 does."""
    shares = torch.full((6, 3), 1 / 3, dtype=torch.float64)
    whole, pieces = (torch.Generator().manual_seed(0) for _ in range(2))
    drawn = [torch.multinomial(some, 1, generator=pieces) for some in shares.split((2, 4))]
    return torch.equal(torch.multinomial(shares, 1, generator=whole), torch.cat(drawn))


@pytest.mark.skipif(not draws_in_pieces_as_whole(), reason="this torch draws other labels for pieces of a batch")
def test_labels_are_drawn_once_where_arguments_are_told_apart() -> None:
    torch.manual_seed(0)
    model, x = Placed().double(), torch.randint(12, (6, 6))
    drawn = torch.multinomial(model(x, POSITIONS).softmax(-1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    found = diagonal_fisher(model, [{"x": x, "places": POSITIONS}], targets="sampled", chunk_size=6)
    assert_same(found, slow_fisher(model, [(x, POSITIONS, drawn)], 1), 1e-10)


def test_a_second_argument_with_one_row_a_sample_is_cut_with_the_first() -> None:
    torch.manual_seed(0)
    model, x, y = Placed().double(), torch.randint(12, (6, 6)), torch.randint(3, (6,))
    scale = torch.rand(6, 6, 1, dtype=torch.float64)
    batches = [(x, POSITIONS.expand(6, 6), scale, y)]
    assert_same(diagonal_fisher(model, batches), slow_fisher(model, batches, 0), 1e-10)


class Mixing(nn.Module):
    """Scales by the mean of all samples, and adds the mean of a second argument: of all samples, or that they share."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        logits: Tensor = self.left(a) * a.mean() + self.right(b).mean(0)
        return logits


def test_arguments_that_cannot_be_told_apart_are_refused() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(5, 3), torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"\(5, 3\), \(5, 4\).*batch of 5 samples.*Mixing"):
        diagonal_fisher(Mixing(), [batch])


class Shared(nn.Module):
    """A layer of its own that is called with a table which all samples share, and has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = Inner(), nn.Linear(3, 3)
        self.register_buffer("table", torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.inner(x, self.table)))
        return logits


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return x * self.weight + (self.weight * table).square().sum(0)


@pytest.mark.parametrize("sizes", [(7, 4), (4, 7), (7, 1, 4)], ids=str)
def test_what_a_module_shares_may_be_as_long_as_a_later_batch(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = Shared().double()
    batches = [(torch.randn(size, 3).double(), torch.randint(3, (size,))) for size in sizes]
    assert_same(diagonal_fisher(model, batches), slow_fisher(model, batches, 0), 1e-10)


# Samples in another order


class Reordered(nn.Module):
    """One layer before and after the samples are put into another order."""

    def __init__(self, order: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.head, self.order = nn.Linear(4, 4), nn.Linear(4, 3), order

    def forward(self, x: Tensor) -> Tensor:
        order, h = self.order(x), torch.tanh(self.layer(x))
        again = torch.zeros_like(h).index_copy(0, order, torch.tanh(self.layer(h[order])))
        logits: Tensor = self.head(h + again)
        return logits


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "all but the first two turned": lambda x: torch.cat([torch.arange(len(x))[:2], torch.arange(len(x))[2:].flip(0)]),
    "the last two swapped": lambda x: (
        torch.cat([torch.arange(len(x))[:-2], torch.arange(len(x))[-2:].flip(0)])
        if len(x) > 3
        else torch.arange(len(x))
    ),
    "sorted": lambda x: x[:, 0].argsort(),
    "sorted by rows": lambda x: x.topk(len(x), dim=0).indices[:, 0],
}


@pytest.mark.parametrize("sizes", [(9,), (2, 7), (1, 1, 7), (20, 5)], ids=str)
@pytest.mark.parametrize("name", ORDERS)
def test_samples_that_are_reordered_on_the_way(name: str, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, total = Reordered(ORDERS[name]).double(), sum(sizes)
    x, y = torch.randn(total, 4).double(), torch.randint(3, (total,))
    x = x[x[:, 0].argsort(descending="rows" in name)]  # sorted as they come
    last = sizes[-1]
    x[-last:] = x[-last:][torch.randperm(last)]
    x[-last:][:2] = x[-last:][:2].sort(dim=0).values
    batches = cut(x, y, list(sizes))
    assert_same(diagonal_fisher(model, batches), slow_fisher(model, batches, 0), 1e-10)


# What changes the forward pass without changing the modules


class Moody(nn.Module):
    """Does what ``how`` says, an attribute that no structure shows."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, 6)
        self.head = nn.Linear(6, 4)
        self.how: Callable[[Moody, Tensor], Tensor] = Moody.plain
        self.knobs = {"transposed": False}

    def plain(self, x: Tensor) -> Tensor:
        return torch.relu(self.lift(x)).mean(1)

    def transposed(self, x: Tensor) -> Tensor:
        h = torch.relu(self.lift(x.transpose(0, 1).reshape(-1, 3)))
        return h.view(x.shape[1], len(x), -1).mean(0)

    def behind(self, x: Tensor) -> Tensor:
        h = torch.relu(self.lift(x)) @ self.lift.weight
        return nn.functional.linear(h, self.lift.weight, self.lift.bias).relu().mean(1)

    def looked_up(self, x: Tensor) -> Tensor:
        return self.transposed(x) if self.knobs["transposed"] else self.plain(x)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.how(self, x))
        return out


def turn(model: Moody, to: str) -> None:
    if to == "a closure":
        inner = Moody.transposed
        model.how = lambda self, x: inner(self, x)
    elif to == "a value inside":
        model.knobs["transposed"] = True
    else:
        model.how = getattr(Moody, to)


@pytest.mark.parametrize("to", ["transposed", "behind", "a closure", "a value inside"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_attribute_that_changes_the_forward_pass(to: str, inside: bool) -> None:
    torch.manual_seed(0)
    moody = Moody()
    moody.how = Moody.looked_up if to == "a value inside" else Moody.plain
    model: nn.Module = nn.Sequential(moody) if inside else moody
    x, y = sequences(4)(6)
    assert diagonal_fisher(model, [(x, y)]).strategy == "hooks"
    turn(moody, to)
    assert_same(diagonal_fisher(model, [(x, y)]), oracle(model, x, y), 1e-5)
    moody.how = Moody.plain
    assert diagonal_fisher(model, [(x, y)]).strategy == "hooks"


# Probes that show little


def test_samples_that_are_alike_cannot_be_mixed_unseen() -> None:
    torch.manual_seed(0)
    model, (x, y) = TimeMajor(), sequences(4)(6)
    x[:2], y[:2] = x[0, 0], y[0]  # at every position, too
    assert_same(diagonal_fisher(model, [(x, y)]), oracle(model, x, y), 1e-5)


@pytest.mark.parametrize("blank", [2, 4])
@pytest.mark.parametrize("chunk_size", [2, 3, None])
def test_samples_without_a_gradient_prove_nothing(blank: int, chunk_size: int | None) -> None:
    """Dead units let no gradient through for the first samples; the others show how the weights are used."""
    torch.manual_seed(0)
    model, (x, y) = TimeMajor(), sequences(4)(8)
    with torch.no_grad():
        model.lift.bias.fill_(-0.1)
    x[:blank] = 0.0
    assert not any(float(value.max()) for name, value in oracle(model, x[:2], y[:2]).items() if "lift" in name)
    fisher = diagonal_fisher(model, [(x, y)], chunk_size=chunk_size)
    assert_same(fisher, oracle(model, x, y), 1e-5)
    assert fisher.strategy == "vmap"


def test_a_layer_that_wakes_up_is_checked_and_stays_with_hooks() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4)), sequences(1)(9)
    x = x[:, 0]
    nn.init.constant_(model.get_parameter("0.bias"), -0.5)
    x[:3] = 0.0
    calls: list[int] = []
    model.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
    fisher = diagonal_fisher(model, [(x, y)], chunk_size=3)
    # the check, in a silent chunk, and of its order; one that wakes and its check; the last
    assert calls == [1, 1, 3, 3, 3, 3, 1, 1, 1, 3]
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)


class Faint(nn.Module):
    """A time-major branch that hardly counts beside the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.main = TimeMajor(), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.main(x.mean(1)) + 1e-3 * self.branch(x)
        return out


def test_small_gradients_are_checked_too() -> None:
    torch.manual_seed(0)
    model, (x, y) = Faint(), sequences(4)(6)
    expected = oracle(model, x, y)
    fisher = diagonal_fisher(model, [(x, y)])
    for name, value in expected.items():
        torch.testing.assert_close(fisher[name], value, rtol=1e-4, atol=0)


class Packed(nn.Module):
    """Positions that hold something, of all samples in a row; how many each has is lost."""

    def __init__(self, picked: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.lift, self.head, self.picked = nn.Linear(3, 6), nn.Linear(6, 4), picked

    def forward(self, x: Tensor) -> Tensor:
        full = x[..., 0] != 0
        packed = self.lift(self.picked(x, full)).tanh()
        owner = torch.repeat_interleave(full.sum(1))
        out: Tensor = self.head(packed.new_zeros(len(x), 6).index_add(0, owner, packed))
        return out


@pytest.mark.parametrize(
    "picked",
    [
        lambda x, full: x[full],
        lambda x, full: x.masked_select(full[..., None]).view(-1, 3),
    ],
    ids=["index", "masked_select"],
)
def test_positions_picked_by_a_mask(picked: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, (x, y) = Packed(picked), sequences(4)(4)
    x[0, 2:] = x[1, 2:] = x[2, 1:] = x[3, 3:] = 0.0  # two each in the probe, then one and three
    assert_same(diagonal_fisher(model, [(x, y)], chunk_size=2), oracle(model, x, y), 1e-5)


def test_columns_picked_by_a_mask_are_no_matter() -> None:
    torch.manual_seed(0)
    keep = torch.tensor([True, False, True])

    class Columns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x[:, keep])
            return out

    x, y = torch.randn(5, 3), torch.randint(4, (5,))
    model = Columns()
    fisher = diagonal_fisher(model, [(x, y)])
    assert fisher.strategy == "hooks"
    assert_same(fisher, oracle(model, x, y), 1e-5)


@pytest.mark.parametrize(
    ("dtype", "found", "agrees"),
    [
        (torch.float32, 1.009, True),
        (torch.float32, 1.02, False),
        (torch.float64, 0.98, False),
        (torch.bfloat16, 1.1, True),
        (torch.bfloat16, 1.3, False),
        (torch.float32, float("nan"), False),
    ],
)
def test_rounding_is_not_judged(dtype: torch.dtype, found: float, agrees: bool) -> None:
    p, q = torch.zeros(1, dtype=dtype), torch.zeros(0, dtype=dtype)
    with contextlib.nullcontext() if agrees else pytest.raises(Unsupported, match=r"shape \(1,\)"):
        _compare({p: torch.tensor([found]), q: torch.zeros(0)}, {p: torch.tensor([1.0]), q: torch.zeros(0)})


def test_a_bias_that_cancels_is_no_reason_against_hooks() -> None:
    """Its gradient is pure rounding, and differs from way to way."""
    for seed in range(5):
        torch.manual_seed(seed)
        layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(8, 8), nn.ReLU()) for _ in range(8)]
        model = nn.Sequential(nn.Conv2d(3, 8, 1), *layers, nn.Flatten(), nn.Linear(8 * 64, 4))
        x, y = images(8)(2)
        assert diagonal_fisher(model, [(10 * x, y)]).strategy == "hooks"


# The log


def test_both_slower_ways_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Newcomer(TimeMajor):
        pass

    with caplog.at_level(logging.WARNING, "tmln.curvature"):
        diagonal_fisher(Newcomer(), [sequences(4)(4)])
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "per-sample gradients: Newcomer goes by vmap, which is slower"
    ]
