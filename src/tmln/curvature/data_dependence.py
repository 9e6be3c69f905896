"""Whether a forward pass looks at the values in a batch: then a chunk is not what its samples are alone."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Code that reads masks only to find out whether one can be left out, or warned about: with and without, the numbers are
# the same. Named by module, or by module and function.
HARMLESS = {
    "torch.nn.modules.transformer",
    "transformers.masking_utils",
    "transformers.modeling_attn_mask_utils",
    "transformers.modeling_utils.warn_if_padding_and_no_attention_mask",
    "transformers.utils.import_utils.torch_compilable_check",
}


class Unsupported(Exception):
    """The fast pass cannot do that model exactly; ``culprit`` is the module that is to blame, where that is known."""

    def __init__(self, words: str, culprit: torch.nn.Module | None = None) -> None:
        super().__init__(words)
        self.culprit = culprit


class NoDataDependence(TorchDispatchMode):
    """A forward that branches on values treats a chunk as one: then samples must go alone.

    So does one that picks rows by a mask: how many each sample has, nobody knows afterwards. And one that sorts along
    dim 0 may put samples into an order that the batch which is checked has already.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        branches = func in (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default)
        rows = args[1][0] if func is aten.index.Tensor else None
        picks = rows is not None and rows.dtype is torch.bool
        sorts = func in (aten.sort.default, aten.sort.stable, aten.topk.default)
        if (branches or picks or (sorts and _first_dim(func, args, kwargs or {}))) and not _harmless(sys._getframe(1)):
            raise Unsupported("its forward depends on the values in a batch")
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler, 1.5 s, to keep it away from here, where nothing is compiled."""
        return False


def _first_dim(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a sort is along dim 0; its argument ``dim`` is the last dimension unless given."""
    place = 2 if func is torch.ops.aten.topk.default else 1
    dim = args[place] if len(args) > place else kwargs.get("dim", -1)
    return bool(args[0].dim() and dim % args[0].dim() == 0)


def _harmless(frame: FrameType | None) -> bool:
    """Whether the innermost code outside torch, or a known place in torch, is one of those that do no harm."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in HARMLESS or f"{module}.{frame.f_code.co_name}" in HARMLESS:
            return True
        if module.partition(".")[0] != "torch" and module != __name__:
            return False
        frame = frame.f_back
    return False
