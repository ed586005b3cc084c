"""Optimizers: Adam, or Muon for the matrices inside the network and Adam for everything else.

Muon (Jordan et al., 2024) takes the momentum of a matrix, replaces it by the nearest orthogonal one
through a few Newton-Schulz products, and steps along that: all directions move, not just the
strongest. Batched by shape, because small networks on a CPU have many small matrices, and in fp32
unless the run is in bf16, which most CPUs only emulate.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from ..config import TrainConfig

BETAS, EPS = (0.9, 0.98), 1e-9  # Adam, as in the paper
MOMENTUM = 0.95  # this and the coefficients are those of the authors
NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5


def make_optimizer(model: nn.Module, width: int, config: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimizer of `config`; the training loop sets its rates by `set_rate`."""
    named = dict(model.named_parameters())
    # Matrices between layers. Embeddings and the two side vectors are tables, not maps: Adam's.
    inner = [p for n, p in named.items() if p.dim() == 2 and "embedding" not in n and n != "side"]
    chosen = {id(p) for p in inner}
    rest = [p for p in named.values() if id(p) not in chosen]
    if config.optimizer == "muon":
        scale = config.matrix_lr / config.lr
        work = torch.bfloat16 if config.dtype == "bf16" else torch.float32
        return Muon(inner, rest, width, config.weight_decay, scale, work)
    decay = config.weight_decay if config.optimizer == "adamw" else 0.0
    groups = [{"params": inner, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr, betas=BETAS, eps=EPS, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class Muon(torch.optim.Optimizer):
    """Muon on `matrices`, at `scale` times the rate, and Adam on `others`.

    A matrix made of several, such as the fused projection of queries, keys and values (3D × D), is
    taken apart into `width` rows each: they are different maps that happen to lie together.
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        others: Iterable[Tensor],
        width: int,
        decay: float,
        scale: float,
        work: torch.dtype = torch.float32,
    ) -> None:
        groups = [{"params": list(matrices), "muon": True}, {"params": list(others), "muon": False}]
        super().__init__(groups, {"lr": 0.0})
        self.width, self.decay, self.scale, self.work = width, decay, scale, work

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            with_grad = [p for p in group["params"] if p.grad is not None]
            if group["muon"]:
                self._step_muon(with_grad, group["lr"] * self.scale)
            else:
                self._step_adam(with_grad, group["lr"])

    def _step_muon(self, parameters: list[Tensor], rate: float) -> None:
        shapes: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
        for p in parameters:
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
            assert p.grad is not None
            state["momentum"].lerp_(p.grad, 1 - MOMENTUM)
            update = p.grad.lerp(state["momentum"], MOMENTUM)  # Nesterov
            for weight, part in zip(
                self._split_maps(p.data), self._split_maps(update), strict=True
            ):
                # Lying down, so that the Gram matrix is the smaller of the two.
                wide = part.shape[0] > part.shape[1]
                weight, part = (weight.T, part.T) if wide else (weight, part)
                shapes.setdefault(tuple(part.shape), []).append((weight, part))
        for (_, columns), pairs in shapes.items():
            # The factor gives updates the size that Adam's have, so that rates compare.
            size = 0.2 * columns**0.5 * rate
            updates = orthogonalize(torch.stack([part for _, part in pairs]), self.work)
            for (weight, _), update in zip(pairs, updates, strict=True):
                weight.mul_(1 - rate * self.decay).sub_(update, alpha=size)

    def _split_maps(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the maps that a matrix consists of: D × D ones, or the matrix itself."""
        return x.split(self.width) if x.shape[1] == self.width and not len(x) % self.width else (x,)

    def _step_adam(self, parameters: list[Tensor], rate: float) -> None:
        for p in parameters:
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] = state["step"].to(p.device)
        states = [self.state[p] for p in parameters]
        averages, squares, steps = (
            [state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        # Fused: a table of 56,000 x 128 takes 6 ms of a core instead of 48, a fifth of a step.
        adam(
            parameters, [p.grad for p in parameters if p.grad is not None], averages, squares, [],
            steps, fused=True, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=rate,
            weight_decay=0.0, eps=EPS, maximize=False,
        )  # fmt: skip


def orthogonalize(x: Tensor, work: torch.dtype = torch.float32) -> Tensor:
    """Return about the nearest semi-orthogonal matrix to each of x (N, rows <= columns)."""
    # The iteration pushes all singular values towards 1; it needs them to be at most 1 at first.
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-12)).to(work)
    for a, b, c in NEWTON_SCHULZ:
        gram = x @ x.transpose(-1, -2)
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x
