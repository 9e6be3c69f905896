"""Training of a head alone: features of the frozen backbone are computed once in a task.

A task's samples are passed through the backbone before its first step, in order, and a replayed
sample by itself when it is first drawn: a task that is resumed computes the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.learner.forward import MaskedModel
from tmln.learner.task_data import Augment, skip_augmentation
from tmln.methods import Features, prepare_inputs
from tmln.methods.answers.feature_cache import digest_rows
from tmln.methods.fine_tuning import find_fine_tuning
from tmln.progress import track
from tmln.streams.arrays import DatasetSource
from tmln.streams.augment import Normalise
from tmln.streams.samples import Samples, Source

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

LIMIT = 2**30  # bytes of features in memory; a task with more passes all of the model in every step


class HeadPass(nn.Module):
    """The training pass of a model whose backbone is frozen: known features go to the head alone.

    Args:
        masked: the model as components see it.
        network: the network in it that carries the fine-tuning.
        head: the name in ``network`` of the layer that gives the output.
        room: samples whose features are kept; where there are more, the model is passed whole.
    """

    def __init__(self, masked: nn.Module, network: nn.Module, head: str, room: int) -> None:
        super().__init__()
        self.masked, self.network, self.head, self.room = masked, network, head, room
        self.known: dict[bytes, Tensor] = {}
        self.computed = 0  # samples that were passed through the backbone

    def add(self, x: Tensor) -> None:
        """Compute the features of model inputs that are not known yet."""
        keys = digest_rows(b"", x)
        if all(key in self.known for key in keys):
            return
        with torch.no_grad(), preserve_model(self.network, training=False):
            rows = Features(self.head, "head").extract(self.network, x)[1]
        self.known.update(zip(keys, rows, strict=True))
        self.computed += len(rows)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of model inputs."""
        keys = digest_rows(b"", x)
        missing = [row for row, key in enumerate(keys) if key not in self.known]
        if len(self.known) + len(missing) > self.room:
            whole: Tensor = self.masked(x)
            return whole
        for row in missing:
            self.add(x[row : row + 1])
        output: Tensor = self.network.get_submodule(self.head)(torch.stack([self.known[key] for key in keys]))
        return self.masked.close(output) if isinstance(self.masked, MaskedModel) else output


def make_head_pass(learner: Learner, samples: Samples) -> HeadPass | None:
    """Return the pass for this task, without features yet; None where the model is passed whole.

    That is where weights of the backbone are trained, each epoch augments its samples anew (a data
    set of one's own might), something follows the head, features would take more than ``LIMIT``, or
    the pass is compiled, in half precision, in micro-batches or shared by several processes.
    """
    trained = learner.trained
    found = find_fine_tuning(learner.model)
    if found is None or found[1].freeze != "backbone" or not is_deterministic(learner.augment):
        return None
    if reads_dataset(samples.source) or trained.forward is not trained.masked:
        return None
    network, tuning = found
    x = prepare_inputs(learner.model, samples.gather(torch.arange(1))[0], learner.prepare)
    with torch.no_grad(), preserve_model(learner.model, training=False):
        output, features = Features(tuning.head, "head").extract(network, x)
        try:
            same = torch.equal(network.get_submodule(tuning.head)(features), output)
        except RuntimeError:  # the features were flattened, and the head takes them as they were
            same = False
    memory = getattr(learner.replay, "memory", None)
    count = len(samples) + (0 if memory is None else memory.capacity)
    if not same or count * features.nbytes > LIMIT:
        return None
    return HeadPass(trained.masked, network, tuning.head, count)


def reads_dataset(source: Source) -> bool:
    """Return whether samples are read from a data set of torch, whose transforms may be random."""
    parts = getattr(source, "sources", None) or [inner for inner in [getattr(source, "source", None)] if inner]
    return isinstance(source, DatasetSource) or any(map(reads_dataset, parts))


def is_deterministic(augment: Augment) -> bool:
    """Return whether training inputs are the same in every epoch."""
    return isinstance(augment, Normalise) or (isinstance(augment, partial) and augment.func is skip_augmentation)


@contextmanager
def reuse_features(learner: Learner, samples: Samples) -> Iterator[None]:
    """Train on features that are computed once, within the block, where that gives the same."""
    trained, made = learner.trained, make_head_pass(learner, samples)
    if made is None:
        yield
        return
    count = -(-len(samples) // trained.rows_per_pass)
    numbers = track(range(count), "batches of features")
    for _, (x, _) in zip(numbers, samples.batches(trained.rows_per_pass), strict=True):
        made.add(prepare_inputs(learner.model, x, learner.prepare))
    before, trained.forward = trained.forward, made
    try:
        yield
    finally:
        if trained.forward is made:
            trained.forward = before
