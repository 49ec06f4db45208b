"""Networks to train, small and large; each can say where its replicas run and with what."""

from hpckit.parallel.models.cnn import CNN
from hpckit.parallel.models.gpt import GPT
from hpckit.parallel.models.layers import MLP, LinearModel
from hpckit.parallel.models.lenet import LeNet
from hpckit.parallel.models.registry import IMAGE_MODELS, MODELS, TEXT_MODELS, make_model
from hpckit.parallel.models.resnet import ResNet18
from hpckit.parallel.models.verbose import Verbose

__all__ = [
    "CNN",
    "GPT",
    "IMAGE_MODELS",
    "MLP",
    "MODELS",
    "TEXT_MODELS",
    "LeNet",
    "LinearModel",
    "ResNet18",
    "Verbose",
    "make_model",
]
