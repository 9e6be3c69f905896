"""Small networks of every kind that the curvature code must do exactly; tests and benchmarks walk this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tmln.models.small import ReducedResNet18


@dataclass(frozen=True)
class Case:
    """A network and a way to draw a batch for it."""

    make: Callable[[], nn.Module]
    draw: Callable[[int], tuple[Tensor, ...]]
    strategy: str = "hooks"


def images(size: int, channels: int = 3, classes: int = 4) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda n: (torch.randn(n, channels, size, size), torch.randint(classes, (n,)))


def tokens(length: int, vocabulary: int = 11) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda n: (torch.randint(vocabulary, (n, length)), torch.randint(vocabulary, (n,)))


def channels_last(model: nn.Module) -> nn.Module:
    for p in model.parameters():
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    return model


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(27, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))


def cnn_with_batch_norm() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3, stride=2, dilation=2, padding=(2, 1), padding_mode="reflect"),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, (2, 3), padding="same", padding_mode="circular", bias=False),
        nn.BatchNorm2d(8, affine=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(8),
        nn.Linear(8, 4),
    )


def depthwise_separable() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.BatchNorm2d(8),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=8, bias=False),  # depthwise with multiplier 2
        nn.GroupNorm(4, 16),
        nn.Conv2d(16, 12, 3, padding=1, groups=4),
        nn.InstanceNorm2d(12, affine=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 4),
    )


class SharedTransformer(nn.Module):
    """A LayerNorm transformer whose output layer is its embedding."""

    def __init__(self, vocabulary: int = 11, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.encoder(self.embedding(x))).mean(1))
        return out


class OwnAttentionTransformer(nn.Module):
    """Attention written out with Linear layers, tokens folded into dim 0 for the MLP: rules only."""

    def __init__(self, vocabulary: int = 11, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        h = h + nn.functional.scaled_dot_product_attention(q, k, v)
        h = h + self.mlp(self.norm(h).flatten(0, 1)).view_as(h)  # the norm is used twice
        out: Tensor = self.head(h.mean(1))
        return out


class Recurrent(nn.Module):
    """One cell, used at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(3 + 5, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t], h], 1)))
        out: Tensor = self.head(h)
        return out


def conv1d_with_groups() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.Conv1d(8, 8, 5, stride=2, padding=2, dilation=1, groups=8, padding_mode="replicate"),
        nn.BatchNorm1d(8),
        nn.Conv1d(8, 6, 3, dilation=2),
        nn.Flatten(),
        nn.Linear(6 * 4, 4),
    )


class OwnParameter(nn.Module):
    """A custom module inside a sequence: done by vmap over that module alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x * self.scale)


class TopParameter(nn.Module):
    """The model itself owns a parameter: all of it goes by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(27) * 0.1)
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x + self.shift.view(3, 3, 3))
        return out


class Functional(nn.Module):
    """Uses a layer's weight behind its back: the rules cannot see that, the check does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(27, 27)
        self.head = nn.Linear(27, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x.flatten(1)))
        out: Tensor = self.head(torch.relu(h @ self.first.weight))
        return out


class Branching(nn.Module):
    """Looks at the values: only a loop over samples is right."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(27, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        out: Tensor = self.second(torch.relu(h) if h.sum() > 0 else torch.tanh(h))
        return out


class TimeFirst(nn.Module):
    """Samples along dim 1 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.lift(x.transpose(0, 1)))
        out: Tensor = self.head(h.mean(0))
        return out


class TimeMajor(nn.Module):
    """Samples along dim 1, then folded into dim 0 behind the positions: rows that a rule could take for its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        h = torch.relu(self.lift(x.transpose(0, 1).reshape(length * samples, width)))
        out: Tensor = self.head(h.view(length, samples, -1).mean(0))
        return out


class CrossAttention(nn.Module):
    """A learned query looks at the sequence, causally masked before: attention that has no rule of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(4, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True)
        self.lift = nn.Linear(3, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        h = h + self.own(h, h, h, attn_mask=later, need_weights=False)[0]
        out: Tensor = self.head(self.cross(h, x, x)[0].mean(1))
        return out


def norms_with_a_large_eps() -> nn.Module:
    """As large as the variances: a rule that used another would be far off."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, eps=0.5),
        nn.Tanh(),
        nn.InstanceNorm2d(8, eps=0.5, affine=True),
        nn.Tanh(),
        nn.GroupNorm(2, 8, eps=0.5),
        nn.Tanh(),
        nn.InstanceNorm2d(8, eps=0.5, affine=True, track_running_stats=True),
        nn.Conv2d(8, 4, 2),
        nn.LayerNorm((4, 2, 2), eps=0.5),
        nn.Flatten(),
        nn.LayerNorm(16, eps=0.5),
        nn.Linear(16, 4),
    )


def volumes() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 4, 2, stride=(1, 2, 1), padding=1, groups=2),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.ConvTranspose3d(4, 2, 2, stride=2, padding=1, output_padding=1, groups=2),
        nn.InstanceNorm3d(2, affine=True),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def upsampling() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dilation=(1, 2), bias=False),
        nn.Tanh(),
        nn.ConvTranspose2d(6, 4, (2, 3), stride=3, output_padding=(2, 1), groups=2),
        nn.Flatten(2),
        nn.ConvTranspose1d(4, 3, 4, padding=1),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def settled(make: Callable[[], nn.Module], draw: Callable[[int], tuple[Tensor, ...]]) -> Callable[[], nn.Module]:
    """With the sizes of lazy layers found."""

    def made() -> nn.Module:
        model = make()
        with torch.random.fork_rng(), torch.no_grad():
            kept, kind = torch.get_default_dtype(), torch.float32
            torch.set_default_dtype(kind)
            model(draw(2)[0])
            torch.set_default_dtype(kept)
        return model

    return made


class MaskedEncoder(nn.Module):
    """torch's encoder with padding and a causal mask, RMS norms, and a sequence that some samples do not fill."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embedding, self.batch_first = nn.Embedding(11, 8), batch_first
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.RMSNorm(8, eps=0.1), enable_nested_tensor=batch_first)
        self.head = nn.Linear(8, 11)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        padding = (x == 0) & (torch.arange(x.shape[1]) > 0)
        h = h if self.batch_first else h.transpose(0, 1)
        h = self.encoder(h, mask=later, src_key_padding_mask=padding)
        out: Tensor = self.head(h.mean(1 if self.batch_first else 0))
        return out


class Positions(nn.Module):
    """An embedding of positions that all samples share, one of pairs of positions, and a layer called by name."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.near = Near()
        self.head = nn.Linear(8, 11)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1])[None])
        out: Tensor = self.head(input=self.near(h).mean(1))
        return out


class Near(nn.Module):
    """Mixes positions by a table of their distances: no sample is in what it looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.value = nn.Embedding(6, 1), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        scores = self.bias((place[:, None] - place).abs())[..., 0]
        return torch.tanh(scores.softmax(-1) @ self.value(x))


def sequences(length: int, width: int = 3) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda n: (torch.randn(n, length, width), torch.randint(4, (n,)))


def cubes(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, 2, 3, 4, 3), torch.randint(4, (n,))


ZOO: dict[str, Case] = {
    "mlp": Case(mlp, images(3)),
    "cnn with batch norm": Case(cnn_with_batch_norm, images(9)),
    "reduced resnet": Case(lambda: ReducedResNet18(4, width=4), images(16)),
    "reduced resnet channels-last": Case(lambda: channels_last(ReducedResNet18(4, width=4)), images(16)),
    "depthwise separable": Case(depthwise_separable, images(8)),
    "transformer, shared embedding": Case(SharedTransformer, tokens(5)),
    "transformer, own attention": Case(OwnAttentionTransformer, tokens(6)),
    "recurrent": Case(Recurrent, sequences(4)),
    "conv1d with groups": Case(conv1d_with_groups, lambda n: (torch.randn(n, 4, 16), torch.randint(4, (n,)))),
    "own parameter": Case(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(27, 16), OwnParameter(), nn.Linear(16, 4)), images(3)
    ),
    "parameter at the top": Case(TopParameter, images(3), "vmap"),
    "functional use": Case(Functional, images(3), "vmap"),
    "branching": Case(Branching, images(3), "loop"),
    "time first": Case(TimeFirst, sequences(4), "vmap"),
    "time first, two steps": Case(TimeFirst, sequences(2), "vmap"),
    "time first, folded": Case(TimeMajor, sequences(4), "vmap"),
    "attention with masks": Case(CrossAttention, sequences(4)),
    "volumes": Case(settled(volumes, cubes), cubes),
    "upsampling": Case(settled(upsampling, images(5)), images(5)),
    "encoder with masks": Case(lambda: MaskedEncoder(True), tokens(5)),
    "encoder with masks, time first": Case(lambda: MaskedEncoder(False), tokens(5), "vmap"),
    "positions": Case(Positions, tokens(6)),
    "norms with a large eps": Case(norms_with_a_large_eps, images(5)),
}
