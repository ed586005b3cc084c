"""Run PTX in NumPy: all threads of some blocks at once, one instruction after the other.

Threads that took different branches wait for those that are behind. Floats are computed in double
precision and rounded once, so approximate instructions are as good as the best GPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from .memory import GlobalMemory, SharedMemory
from .program import Instruction, Program

BLOCKS_AT_ONCE = 64
WARP = 32
_BITS = {16: np.uint16, 32: np.uint32, 64: np.uint64}
Mask = np.ndarray
Step = Callable[["Machine", Instruction, Mask], None]
STEPS: dict[str, Step] = {}


class Unknown(NotImplementedError):
    """An instruction that no kernel of ours had so far."""


def step(*names: str) -> Callable[[Step], Step]:
    """Register what an instruction does, by the first part of its name."""

    def add(function: Step) -> Step:
        STEPS.update(dict.fromkeys(names, function))
        return function

    return add


def run_blocks(
    program: Program,
    grid: Sequence[int],
    shared: int,
    arguments: Sequence[int | float],
    memory: GlobalMemory,
    executed: dict[str, int] | None = None,
) -> None:
    """Run a whole grid."""
    assert len(arguments) == len(program.parameters), "another number of arguments"
    from . import instructions  # noqa: F401 (it registers them)

    values = {}
    for (kind, name), value in zip(program.parameters, arguments, strict=True):
        if kind == "f32":
            values[name] = int(np.float32(value).view(np.uint32))
        else:
            values[name] = int(value) % (1 << int(kind[1:]))
    blocks = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(list(grid))))]
    for first in range(0, len(blocks), BLOCKS_AT_ONCE):
        part = np.array(blocks[first : first + BLOCKS_AT_ONCE], np.uint32)
        machine = Machine(program, part, grid, shared, values, memory)
        with np.errstate(all="ignore"):
            machine.run({} if executed is None else executed)


class Machine:
    """The threads of some blocks with their registers and shared memory. A lane is a thread."""

    def __init__(
        self,
        program: Program,
        blocks: np.ndarray,
        grid: Sequence[int],
        shared: int,
        values: dict[str, int],
        memory: GlobalMemory,
    ) -> None:
        self.program, self.values, self.memory = program, values, memory
        self.lanes = len(blocks) * program.threads
        self.block_of = np.repeat(np.arange(len(blocks)), program.threads)
        thread = np.tile(np.arange(program.threads, dtype=np.uint32), len(blocks))
        self.warp_of = (thread // WARP).astype(np.int64)
        self.shared = SharedMemory(len(blocks), shared)
        self.registers: dict[str, np.ndarray] = {
            "%tid.x": thread,
            **{f"%ctaid.{axis}": blocks[self.block_of, i] for i, axis in enumerate("xyz")},
            **{f"%nctaid.{axis}": self.fill(grid[i], 32) for i, axis in enumerate("xyz")},
        }

    def run(self, executed: dict[str, int]) -> None:
        program = self.program
        end = len(program.instructions)
        places = np.zeros(self.lanes, np.int64)
        while True:
            here = int(places.min())
            if here == end:
                return
            instruction = program.instructions[here]
            executed[instruction.parts[0]] = executed.get(instruction.parts[0], 0) + 1
            at = places == here
            active = at
            if instruction.predicate:
                chosen = self.read(instruction.predicate)
                active = at & (~chosen if instruction.negated else chosen)
            kind = instruction.parts[0]
            places[at] = here + 1
            if kind == "bra":
                places[active] = program.labels[instruction.operands[0]]
            elif kind == "ret":
                places[active] = end
            elif kind == "bar":
                self._pass_barrier(at, places, end)
            elif active.any():
                try:
                    STEPS[kind](self, instruction, active)
                except KeyError:
                    raise Unknown(instruction.text) from None
                except Exception as error:
                    raise type(error)(f"{error}; in {program.name}: {instruction.text}") from error

    def _pass_barrier(self, at: Mask, places: np.ndarray, end: int) -> None:
        blocks = np.unique(self.block_of[at])
        waiting = np.isin(self.block_of, blocks) & (places != end)
        assert (at == waiting).all(), "a barrier that some threads of a block do not reach"
        self.shared.pass_barrier(blocks)

    # ---- registers ----

    def fill(self, value: int, bits: int) -> np.ndarray:
        return np.full(self.lanes, value & ((1 << bits) - 1), _BITS[bits])

    def register_type(self, name: str) -> type:
        kinds = {"%rd": np.uint64, "%rs": np.uint16, "%p": np.bool_}
        return next((kind for start, kind in kinds.items() if name.startswith(start)), np.uint32)

    def read(self, operand: str, bits: int = 32) -> np.ndarray:
        """Return a register or a constant as unsigned integers; predicates as booleans."""
        if operand.startswith("%"):
            if operand not in self.registers:
                # LLVM copies registers that are not set on every way.
                self.registers[operand] = np.zeros(self.lanes, self.register_type(operand))
            return self.registers[operand]
        if operand == "global_smem":
            return self.fill(0, bits)
        if operand in ("true", "false"):
            return np.full(self.lanes, operand == "true")
        if operand[:2] in ("0f", "0F"):
            return self.fill(int(operand[2:], 16), 32)
        return self.fill(int(operand, 0), bits)

    def read_typed(self, operand: str, kind: str) -> np.ndarray:
        """Return an operand as a type such as s32, u64, f16 or b32."""
        if kind == "pred":
            return self.read(operand).astype(bool)
        bits = int(kind.lstrip("sufb"))
        raw = self.read(operand, bits).astype(_BITS[bits])
        letter = {"s": "i", "f": "f"}.get(kind[0], "u")
        return raw.view(f"{letter}{bits // 8}")

    def write(self, name: str, values: np.ndarray, active: Mask) -> None:
        """Write values, of any type as wide as the register, where threads are active."""
        if name == "_":
            return
        kind = self.register_type(name)
        if kind is not np.bool_:
            values = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
        assert values.dtype == kind, f"{values.dtype} for {name}"
        old = self.registers.get(name)
        if old is None:
            old = np.zeros(self.lanes, kind)
        self.registers[name] = np.where(active, values, old)

    def addresses(self, operand: str) -> np.ndarray:
        """Return the addresses of `[%rd1+8]`."""
        base, _, offset = operand.strip("[] ").replace(" ", "").partition("+")
        start = self.read(base, 64).astype(np.int64)
        return start + (int(offset, 0) if offset else 0)

    # ---- memories ----

    def load(self, shared: bool, addresses: np.ndarray, size: int, active: Mask) -> np.ndarray:
        """Return (lanes, size) bytes, 0 where threads are not active."""
        out = np.zeros((self.lanes, size), np.uint8)
        if not active.any():
            return out
        if shared:
            out[active] = self.shared.load(
                addresses[active], size, self.block_of[active], self.warp_of[active]
            )
        else:
            out[active] = self.memory.load(addresses[active], size)
        return out

    def store(self, shared: bool, addresses: np.ndarray, data: np.ndarray, active: Mask) -> None:
        if not active.any():
            return
        if shared:
            self.shared.store(
                addresses[active], data[active], self.block_of[active], self.warp_of[active]
            )
        else:
            self.memory.store(addresses[active], data[active])

    def whole_warps(self, active: Mask) -> Mask:
        """Return which warps are active; an instruction of warps needs all of their threads."""
        warps = active.reshape(-1, WARP)
        assert (warps.all(1) == warps.any(1)).all(), "a warp is not together at a warp instruction"
        return warps.all(1)
