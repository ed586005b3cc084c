"""The ways to read a model as alignment, and graphs and networks that are read so.

A graph of Mask-Align computes the posterior; the prior is what is left without it.
"""

from dataclasses import replace

import numpy as np
import onnx

from ...engine.bundle.read_out import read_prior
from ...engine.errors import MxError
from ...engine.links.scoring import link_f1
from ...trainer.config import ModelConfig
from ...trainer.networks.mask_align import MaskAlign
from ...trainer.networks.weights import Network
from .probe import Probe, batch_probe
from .verification import run_network

EXACT_PAIRS = 20  # on which the closed form is compared: the exact one takes seconds for each


def list_readings(config: ModelConfig, asked: str | None) -> list[str]:
    """Return the ways to read a model, the default one first; of a student there is one, ""."""
    if config.kind == "student":
        if asked:
            raise MxError("--read is for Mask-Align; a student has one kind of weights only")
        return [""]
    chosen = asked or ("posterior" if config.read == "exact" else config.read)
    if chosen not in ("prior", "posterior"):
        raise MxError(
            f"the run is read as {chosen}, which cannot be exported; give --read posterior or prior"
        )
    return [chosen, "posterior" if chosen == "prior" else "prior"]


def read_network(model: Network, read: str) -> Network:
    """Let a network be read in one of the ways."""
    if read:
        model.config = replace(model.config, read=read)
    return model


def read_graph_as(graph: onnx.ModelProto, read: str) -> onnx.ModelProto:
    """Return a graph whose outputs are of one of the ways."""
    if read != "prior":
        return graph
    return onnx.load_model_from_string(read_prior(graph.SerializeToString(deterministic=True)))


def compare_with_exact(model: Network, probe: Probe | None, threshold: float) -> float | None:
    """Return the F1 of links of the closed posterior against the exact one, by pieces.

    None if there is nothing to compare.
    """
    if probe is None or not isinstance(model, MaskAlign) or model.config.read != "posterior":
        return None
    links: dict[str, list[set[tuple[int, ...]]]] = {"posterior": [], "exact": []}
    for _, batch in batch_probe(Probe(probe.pairs[:EXACT_PAIRS], probe.name)):
        for read, found in links.items():
            scores = run_network(read_network(model, read), batch)["scores"]
            found.append({tuple(map(int, cell)) for cell in np.argwhere(scores >= threshold)})
    read_network(model, "posterior")
    return link_f1(links["exact"], links["posterior"])  # type: ignore[arg-type]
