"""Networks by name, each with a single head over all classes: built in, from timm, or user code."""

from tmln.models.custom import factory
from tmln.models.mobilenet import MobileNetV2
from tmln.models.registry import MODELS, Model, make_model
from tmln.models.resnet import ReducedResNet18
from tmln.models.small import MLP, SmallCNN

__all__ = ["MLP", "MODELS", "MobileNetV2", "Model", "ReducedResNet18", "SmallCNN", "factory", "make_model"]
