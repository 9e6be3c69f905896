"""Positions at which a product is nothing, such as padding: left out, with samples in order of what is left."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tmln.curvature.lazy_gradients import Lookup, Piece, Product

LOOK = 8  # columns that tell of most positions that they are something


def packed(pieces: Sequence[Piece]) -> list[Piece]:
    """The same sums over samples, which may be in another order, from fewer positions.

    A classifier's last block has a gradient at one position of each text, padding has one nowhere.
    """
    products = [piece for piece in pieces if isinstance(piece, Product)]
    lookups = [piece for piece in pieces if isinstance(piece, Lookup)]
    if len(products) != 1 or len(lookups) != len(pieces) - 1:
        return list(pieces)
    (whole,) = products
    something = occupied(whole)
    if something is None:
        return list(pieces)
    counts = something.sum(1)
    order = counts.argsort(descending=True, stable=True)
    most = max(1, int(counts.max()))
    place = something[order].logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    at = (order[:, None], place)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    product = Product(whole.left[at], whole.right[at], whole.start, tuple(counts[order].tolist()))
    return [product, *(Lookup(rank[piece.sample], piece.row, piece.values) for piece in lookups)]


def occupied(product: Product) -> Tensor | None:
    """[n, T]: at which positions the product is not nothing; ``None``: at all of them.

    Nothing times what is not finite is not nothing.
    """
    sides = (product.left, product.right)
    found = torch.stack([side[..., :LOOK].ne(0).any(-1) for side in sides]).all(0)
    if bool(found.all()):
        return None
    unsure = found.logical_not()
    found[unsure] = torch.stack([side[unsure].abs().sum(-1) for side in sides]).prod(0).ne(0)
    return None if bool(found.all()) else found
