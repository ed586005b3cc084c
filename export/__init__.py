"""From a training run to a bundle: the ONNX graphs, their fused ops and precisions, verified."""
