"""Makes networks and moves their weights to and from safetensors files.

The only place that writes weights with torch, and that knows which kinds of network there are.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...engine.errors import MxError
from ...engine.storage import replace_path
from ..config import ModelConfig, RunConfig, check_config, read_config
from .mask_align import MaskAlign
from .student import Student

Network: TypeAlias = MaskAlign | Student

MODEL = "model.safetensors"  # a run's best weights so far


def make_network(config: ModelConfig) -> Network:
    """Make a network with random weights."""
    return Student(config) if config.kind == "student" else MaskAlign(config)


def error_reason(error: Exception) -> str:
    """Return what the system or safetensors says, without numbers and names of files."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors into a file with the mode of any other."""
    # safetensors wants contiguous CPU tensors.
    save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, path)
    mask = os.umask(0)  # can be read by setting it only
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # safetensors makes files that nobody else can read


def assign_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy tensors into the parameters; every missing or unknown name is an error."""
    parameters = dict(model.named_parameters())
    odd = sorted(set(parameters) ^ set(tensors))
    if odd:
        raise MxError(f"weights do not fit the model; missing or unknown: {', '.join(odd)}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                found, wanted = list(tensors[name].shape), list(parameter.shape)
                raise MxError(f"weights do not fit the model: {name} is {found}, not {wanted}")
            parameter.copy_(tensors[name])


def publish_weights(run: Path, tensors: dict[str, Tensor], name: str = MODEL) -> None:
    """Replace a run's `model.safetensors`, or its file `name`, by these weights."""
    try:
        with replace_path(run / name) as temp:  # readers see the old weights or the new ones
            save_tensors(tensors, temp)
    except (OSError, SafetensorError) as error:
        raise MxError(f"cannot write {run / name}: {error_reason(error)}") from error


def check_trained(run: Path) -> None:
    """Raise an error if the run has no model yet."""
    if not (run / MODEL).exists():
        raise MxError(f"{run} has no {MODEL}; is it a run folder with at least one validation?")


def load_network(run: Path, read: str | None = None) -> tuple[Network, RunConfig]:
    """Load the best network of a run folder, ready to align, and the run's settings.

    `read` is the way to read it, if not that of the settings.
    """
    check_trained(run)
    config = read_config(run / "config.json")
    if read:
        config = check_config(replace(config, model=replace(config.model, read=read)))
    model = make_network(config.model)
    load_weights(run / MODEL, model)
    return model.eval(), config


def load_weights(path: Path, model: nn.Module) -> None:
    """Put what `publish_weights` wrote into a network."""
    try:
        assign_weights(model, load_file(path))
    except (OSError, SafetensorError) as error:
        raise MxError(
            f"{path} is damaged ({error_reason(error)}); resume the run to write it anew"
        ) from error
