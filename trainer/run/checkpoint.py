"""Checkpoints, which appear whole or not at all. Does not know what is trained, or on what.

The run folder:

    RUN/config.json, command.json   the resolved settings; the texts the run was started on
    RUN/src.spm, tgt.spm            vocabularies (src.spm alone if joint)
    RUN/text/                       standard input and pipes, copied: text is read several times
    RUN/cache/                      tokenised text and links: may be deleted, is built again
    RUN/checkpoints/step-N/         model, averaged and optimizer tensors, state.json
    RUN/model.safetensors           the best weights so far: what `mx-export` reads
    RUN/start.safetensors           the weights of --start, until there is a checkpoint
    RUN/log.jsonl                   one line per logged step and per validation
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ...engine.errors import MxError
from ...engine.storage import replace_path
from ..networks.weights import MODEL, assign_weights, error_reason, save_tensors

START = "start.safetensors"


def list_checkpoints(run: Path) -> list[Path]:
    """Return the whole checkpoints, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def checkpoint_folder(run: Path, step: int) -> Path:
    """Return where the checkpoint of a step is kept."""
    return run / "checkpoints" / f"step-{step:08d}"


def save_checkpoint(
    run: Path,
    step: int,
    model: nn.Module,
    averaged: dict[str, Tensor] | None,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
) -> Path:
    """Write `checkpoints/step-N`; it has that name only when every byte is on the disk."""
    final = checkpoint_folder(run, step)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        # The step may have been saved before, by a run that went on from an earlier checkpoint.
        with replace_path(final) as temp:
            temp.mkdir()
            save_tensors(dict(model.named_parameters()), temp / MODEL)
            if averaged is not None:
                save_tensors(averaged, temp / "averaged.safetensors")
            state_tensors = {
                f"{name}/{key}": value
                for name, parameter in model.named_parameters()
                for key, value in optimizer.state.get(parameter, {}).items()
            }
            save_tensors(state_tensors, temp / "optimizer.safetensors")
            (temp / "state.json").write_bytes(json.dumps(state).encode() + b"\n")
    except (OSError, SafetensorError, MxError) as error:
        raise MxError(
            f"cannot write the checkpoint {final}: {error_reason(error)}; the run can be resumed "
            "from the one before once there is room"
        ) from error
    return final


def load_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Put a checkpoint back into network and optimizer; return its state and averaged weights."""
    try:
        assign_weights(model, load_file(folder / MODEL))
        parameters = dict(model.named_parameters())
        for full, value in load_file(folder / "optimizer.safetensors").items():
            name, key = full.split("/")
            optimizer.state[parameters[name]][key] = value.to(parameters[name].device)
        state = json.loads((folder / "state.json").read_text("utf-8"))
        if not (folder / "averaged.safetensors").exists():
            return state, None
        averaged = load_file(folder / "averaged.safetensors")
        # In the order of the parameters, which is not that of the file.
        return state, {name: averaged[name].to(p.device) for name, p in parameters.items()}
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise MxError(
            f"{folder} is damaged ({error}); delete it to resume from the one before"
        ) from error


def prune_checkpoints(run: Path, keep: int, also: set[int]) -> None:
    """Delete all checkpoints but the newest `keep` and those of the steps in `also`."""
    found = list_checkpoints(run)
    for folder in found[: max(0, len(found) - keep)]:
        if int(folder.name.removeprefix("step-")) not in also:
            shutil.rmtree(folder, ignore_errors=True)


def average_checkpoints(folders: list[Path]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints' weights: of the averaged ones if there are any."""
    files = [folder / "averaged.safetensors" for folder in folders]
    each = [load_file(file if file.exists() else file.with_name(MODEL)) for file in files]
    return {name: torch.stack([one[name] for one in each]).mean(0) for name in each[0]}
