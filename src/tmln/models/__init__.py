"""Networks by name, each with a single head over all classes: ours, timm's, your own."""

from tmln.models.cnn import SmallCNN
from tmln.models.custom import factory
from tmln.models.mlp import MLP
from tmln.models.mobilenet import MobileNetV2
from tmln.models.registry import MODELS, Model, make_model
from tmln.models.resnet import ReducedResNet18

__all__ = ["MLP", "MODELS", "MobileNetV2", "Model", "ReducedResNet18", "SmallCNN", "factory", "make_model"]
