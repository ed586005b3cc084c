"""Build the plain graph of a trained network, whatever its kind."""

import math

import onnx
import torch

from ...trainer.config import ModelConfig
from ...trainer.networks.weights import Network
from .builder import Weights
from .mask_align import MaskAlignGraph
from .student import StudentGraph


def collect_weights(model: Network) -> Weights:
    """Return the trained parameters as float32 arrays, and the rates of the positions."""
    weights = {
        name: p.detach().float().cpu().numpy().copy() for name, p in model.named_parameters()
    }
    half = model.config.width // 2
    rates = torch.exp(torch.arange(half) * (-math.log(10000.0) / max(half - 1, 1)))
    return {**weights, "positions.rates": rates.numpy()}


def build_plain_graph(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """Build the graph from piece ids of both sides to scores and, on request, their parts."""
    kind = StudentGraph if config.kind == "student" else MaskAlignGraph
    return kind(config, weights).build()
