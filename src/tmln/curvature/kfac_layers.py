"""Layers with Kronecker factors, and what they add to them (Grosse and Martens 2016)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from tmln.curvature.conv_rules import view_patches
from tmln.curvature.lazy_gradients import at_least_single

Layer = nn.Linear | nn.Conv1d | nn.Conv2d

# Unfolded inputs are made in pieces of this size: a piece stays in the cache and its memory is used
# again, where one big tensor page-faults (2 cores, width-20 ResNet18: several times faster than
# F.unfold at once).
CHUNK_BYTES = 2_000_000

# Columns per panel of a symmetric product; only panels on and right of the diagonal are computed
# (2 cores: 0.65 to 0.75 of the full product's time from 720 columns on, no loss below).
PANEL = 180


def kfac_layers(model: nn.Module) -> dict[str, Layer]:
    """Return the layers with factors, by name: Linear, Conv1d and Conv2d that own what they train.

    Exact types only, since a subclass may compute something else. Left out, and moved by their raw
    gradient, are grouped convolutions, and layers whose weight or bias is frozen, shared with
    another module or computed by a parametrization.
    """
    owners: dict[nn.Parameter, int] = {}
    for module in model.modules():
        for p in module.parameters(recurse=False):
            owners[p] = owners.get(p, 0) + 1
    found: dict[str, Layer] = {}
    for name, module in model.named_modules():
        if type(module) not in (nn.Linear, nn.Conv1d, nn.Conv2d) or getattr(module, "groups", 1) != 1:
            continue
        assert isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d)
        if all(p.requires_grad and owners[p] == 1 for p in layer_parameters(module)) and "weight" in dict(
            module.named_parameters(recurse=False)
        ):
            found[name] = module
    return found


def layer_parameters(layer: Layer) -> list[nn.Parameter]:
    """Return weight and, if there is one, bias: the two parts of the matrix [W|b]."""
    own = dict(layer.named_parameters(recurse=False))
    return [own[name] for name in ("weight", "bias") if name in own]


def factor_sizes(layer: Layer) -> tuple[int, int]:
    """Return the sizes of A and of G: columns and rows of [W|b]."""
    weight = layer.weight
    return weight[0].numel() + (layer.bias is not None), len(weight)


def factor_elements(model: nn.Module) -> int:
    """Return K, the sum of a^2 + g^2 over layers with a inputs (bias included) and g outputs."""
    return sum(a * a + g * g for a, g in map(factor_sizes, kfac_layers(model).values()))


def add_gram(total: Tensor, rows: Tensor) -> None:
    """Add rows^T rows to ``total``, on and right of the diagonal (:func:`mirror_upper`)."""
    for start in range(0, len(total), PANEL):
        stop = start + PANEL
        total[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:])


def mirror_upper(total: Tensor) -> Tensor:
    """Return the symmetric matrix with the upper triangle of ``total``."""
    upper = total.triu()
    return upper + upper.triu(1).T


def input_rows(layer: Layer, inputs: Tensor) -> Iterator[Tensor]:
    """Yield the vectors a that the layer multiplies by its weight, one per row, in pieces.

    A convolution's columns are ordered kernel position first, channel last
    (:func:`reorder_columns`). The homogeneous coordinate is not included.
    """
    if isinstance(layer, nn.Linear):
        yield inputs.reshape(-1, layer.in_features)
        return
    columns = layer.weight[0].numel()
    positions = view_patches(layer, inputs[:1])[0, :, :, 0, 0, 0].numel()
    size = max(1, CHUNK_BYTES // max(1, positions * columns * inputs.element_size()))
    for piece in inputs.split(size):
        yield view_patches(layer, piece).reshape(-1, columns)


def reorder_columns(layer: Layer, factor: Tensor) -> Tensor:
    """Return A in the order of ``weight.flatten(1)``: channel first, kernel position last."""
    if isinstance(layer, nn.Linear) or layer.weight[0, 0].numel() == 1:
        return factor
    positions, channels = layer.weight[0, 0].numel(), layer.in_channels
    split = factor.view(positions, channels, positions, channels)
    return split.permute(1, 0, 3, 2).reshape(factor.shape)


def input_gram(layer: Layer, inputs: Tensor) -> tuple[Tensor, int]:
    """Return the sum of a a^T over samples and positions, and their number.

    With a bias, a ends in the coordinate 1.
    """
    size, _ = factor_sizes(layer)
    columns = layer.weight[0].numel()
    inputs = at_least_single(inputs.detach())
    total = inputs.new_zeros(columns, columns)
    sums = inputs.new_zeros(columns)
    count = 0
    for rows in input_rows(layer, inputs):
        add_gram(total, rows)
        count += len(rows)
        if size > columns:
            sums += rows.sum(0)
    gram = inputs.new_empty(size, size)
    gram[:columns, :columns] = reorder_columns(layer, mirror_upper(total))
    if size > columns:
        if not isinstance(layer, nn.Linear):
            sums = sums.view(-1, layer.in_channels).T.reshape(-1)
        gram[:columns, columns] = gram[columns, :columns] = sums
        gram[columns, columns] = count
    return gram, count


def output_gram(layer: Layer, gradients: Tensor) -> Tensor:
    """Return the sum of g g^T over samples and positions, g = d log p / d output."""
    gradients = at_least_single(gradients.detach())
    if not isinstance(layer, nn.Linear):
        gradients = gradients.movedim(-layer.weight.dim() + 1, -1)
    rows = gradients.reshape(-1, len(layer.weight))
    total = rows.new_zeros(rows.shape[1], rows.shape[1])
    add_gram(total, rows)
    return mirror_upper(total)
