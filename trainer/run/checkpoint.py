"""The run folder: checkpoints that appear whole or not at all, the kept model, safetensors only.

The only place that reads or writes weights with torch. Knows nothing of losses or data.

    RUN/config.json, command.json   the resolved settings; the texts the run was started on
    RUN/src.spm, tgt.spm            vocabularies (src.spm alone if joint)
    RUN/text/                       standard input and pipes, copied: text is read several times
    RUN/cache/                      tokenised text and seed links: may be deleted, is built again
    RUN/checkpoints/step-N/         model, averaged and optimizer tensors, state.json
    RUN/model.safetensors           the best weights so far: what `mx-export` reads
    RUN/start.safetensors           the weights of --start, until there is a checkpoint
    RUN/log.jsonl                   one line per logged step and per validation
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...engine.errors import MxError
from ...engine.text.files import atomic_write, sync_folder
from ..config import RunConfig, from_json
from ..loop.objective import Network, make_network

MODEL = "model.safetensors"
START = "start.safetensors"


def folders(run: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def place(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def save(
    run: Path,
    step: int,
    model: nn.Module,
    averaged: dict[str, Tensor] | None,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
) -> Path:
    """Write `checkpoints/step-N`; it has that name only when every byte is on the disk."""
    final = place(run, step)
    temp = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir(parents=True)
        save_tensors(dict(model.named_parameters()), temp / MODEL)
        if averaged is not None:
            save_tensors(averaged, temp / "averaged.safetensors")
        save_tensors(optimizer_tensors(model, optimizer), temp / "optimizer.safetensors")
        with atomic_write(temp / "state.json") as file:
            file.write(json.dumps(state).encode() + b"\n")
        sync_folder(temp)
        shutil.rmtree(final, ignore_errors=True)
        temp.rename(final)
        sync_folder(final.parent)
    except (OSError, SafetensorError, MxError) as error:
        raise MxError(
            f"cannot write the checkpoint {final}: {reason(error)}; the run can be resumed "
            "from the one before once there is room"
        ) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return final


def reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write and flush; safetensors wants contiguous CPU tensors."""
    save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, path)
    mask = os.umask(0)  # can be read by setting it only
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # safetensors makes files that nobody else can read
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def load(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Put a checkpoint back; returns its state and the averaged weights."""
    try:
        assign(model, load_file(folder / MODEL))
        restore_optimizer(model, optimizer, load_file(folder / "optimizer.safetensors"))
        averaged = folder / "averaged.safetensors"
        state = json.loads((folder / "state.json").read_text("utf-8"))
        return state, load_file(averaged) if averaged.exists() else None
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise MxError(
            f"{folder} is damaged ({error}); delete it to resume from the one before"
        ) from error


def assign(model: nn.Module, tensors: dict[str, Tensor]) -> None:
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


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under the parameters' names."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    parameters = dict(model.named_parameters())
    for full, value in tensors.items():
        name, key = full.split("/")
        parameter = parameters[name]
        optimizer.state[parameter][key] = value.to(parameter.device)


def prune(run: Path, keep: int, also: set[int]) -> None:
    """Delete all checkpoints but the newest `keep` and those of the steps in `also`."""
    found = folders(run)
    for folder in found[: max(0, len(found) - keep)]:
        if int(folder.name.removeprefix("step-")) not in also:
            shutil.rmtree(folder, ignore_errors=True)


def best_weights(folder: Path) -> dict[str, Tensor]:
    """The weights that are evaluated and exported: the averaged ones if there are any."""
    averaged = folder / "averaged.safetensors"
    return load_file(averaged if averaged.exists() else folder / MODEL)


def publish(run: Path, tensors: dict[str, Tensor], name: str = MODEL) -> None:
    """Make these the run's weights, `model.safetensors`, or those that it starts with."""
    temp = run / f".{name}.{os.getpid()}.tmp"
    try:
        save_tensors(tensors, temp)
        temp.rename(run / name)
        sync_folder(run)
    except (OSError, SafetensorError) as error:
        raise MxError(f"cannot write {run / name}: {reason(error)}") from error
    finally:
        temp.unlink(missing_ok=True)


def mean(folders: list[Path]) -> dict[str, Tensor]:
    """The average of several checkpoints' weights."""
    each = [best_weights(folder) for folder in folders]
    return {name: torch.stack([one[name] for one in each]).mean(0) for name in each[0]}


def check_trained(run: Path) -> None:
    """An error if the run has no model yet."""
    if not (run / MODEL).exists():
        raise MxError(f"{run} has no {MODEL}; is it a run folder with at least one validation?")


def load_model(run: Path) -> tuple[Network, RunConfig]:
    """The run's best model, ready to align, and its settings."""
    check_trained(run)
    config = from_json(run / "config.json")
    model = make_network(config.model)
    load_weights(run / MODEL, model)
    return model.eval(), config


def load_weights(path: Path, model: nn.Module) -> None:
    """Put what `publish` wrote into a model."""
    try:
        assign(model, load_file(path))
    except (OSError, SafetensorError) as error:
        raise MxError(
            f"{path} is damaged ({reason(error)}); resume the run to write it anew"
        ) from error
