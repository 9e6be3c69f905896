"""Checks of a learner's model: what cannot be trained is refused in one line with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import prepare_inputs
from tmln.streams.samples import Samples

if TYPE_CHECKING:
    from tmln.learner.learner import Learner


def check_model(model: Any) -> None:
    """Raise unless ``model`` is a network with parameters."""
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}: make a network of it, {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    if next(model.parameters(), None) is None:
        raise ValueError(f"model, a {type(model).__name__}, has no parameters: there is nothing to train")


def check_trainable(learner: Learner) -> None:
    """Raise if the step trains weights and all of them are frozen."""
    step = learner.step
    if step.trains_at(step.settings, learner.tasks) and not any(p.requires_grad for p in learner.model.parameters()):
        raise ValueError(
            "every parameter of the model has requires_grad=False: set it to True for those to train (the head, "
            "say), or use a head in closed form on frozen features, method='slda'"
        )


@contextmanager
def explain_failure(learner: Learner, samples: Samples) -> Iterator[None]:
    """Where torch raises of shapes or types, raise in one line what the model cannot take."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        reason = None if "device" in str(error) else find_misfit(learner, samples)
        if reason is None:
            raise
        raise ValueError(reason) from error


def find_misfit(learner: Learner, samples: Samples) -> str | None:
    """Return in one line why the model takes no sample or gives no logits, or None."""
    model = learner.model
    with preserve_model(model, training=False), torch.no_grad():
        try:
            x = prepare_inputs(model, samples.gather(torch.arange(1))[0], learner.prepare)
            output = model(x)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return (
                f"the model cannot take a sample of shape {list(samples.shape)}: {reason}. Check the model's first "
                "layer, the shape of the data, and prepare="
            )
    if not isinstance(output, Tensor):
        return f"the model returns a {type(output).__name__}: wrap it so that it returns logits [N, classes]"
    if output.dim() != 2 or len(output) != 1:
        return f"the model returns {list(output.shape)} for one sample: logits [N, classes] are needed"
    return None
