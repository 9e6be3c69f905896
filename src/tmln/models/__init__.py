"""Networks by name with one head over all classes: ours, pre-trained, from libraries, your own."""

from tmln.models.backbones import BACKBONES, Backbone, make_backbone
from tmln.models.custom import factory
from tmln.models.mobilenet import MobileNetV2
from tmln.models.registry import MODELS, Model, make_model, spell_options, takes_pixels, takes_texts
from tmln.models.small import MLP, ReducedResNet18, SmallCNN

__all__ = [
    "BACKBONES",
    "MLP",
    "MODELS",
    "Backbone",
    "MobileNetV2",
    "Model",
    "ReducedResNet18",
    "SmallCNN",
    "factory",
    "make_backbone",
    "make_model",
    "spell_options",
    "takes_pixels",
    "takes_texts",
]
