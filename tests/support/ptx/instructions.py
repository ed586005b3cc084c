"""What each instruction of PTX does; NVIDIA's PTX manual has the layouts of matrix fragments."""

from __future__ import annotations

import numpy as np

from .machine import STEPS, WARP, Machine, Mask, Unknown, step
from .program import Instruction, split_vector

_LANE = np.arange(WARP)
_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
            "eq": np.equal, "ne": np.not_equal}  # fmt: skip
_FLOAT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
          "max": np.fmax, "min": np.fmin, "neg": np.negative, "abs": np.abs,
          "ex2": np.exp2, "lg2": np.log2, "sqrt": np.sqrt,
          "rcp": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x),
          "fma": lambda a, b, c: a * b + c, "mad": lambda a, b, c: a * b + c}  # fmt: skip
_INTEGER = {"add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or,
            "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum, "not": np.invert,
            "neg": np.negative, "abs": np.abs}  # fmt: skip


# ---- memory ----


@step("ld", "st")
def access_memory(machine: Machine, op: Instruction, active: Mask) -> None:
    kind = op.parts[-1]
    if op.parts[1] == "param":
        raw = machine.values[op.operands[1].strip("[]")]
        bits = 8 * machine.register_type(op.operands[0])().itemsize
        if kind[0] == "s" and raw >> (int(kind[1:]) - 1):  # widened with its sign
            raw -= 1 << int(kind[1:])
        machine.write(op.operands[0], machine.fill(raw, bits), active)
        return
    shared = op.parts[1].startswith("shared")
    size = int(kind[1:]) // 8
    vector, place = (op.operands[0], op.operands[1])[:: 1 if op.parts[0] == "ld" else -1]
    registers = split_vector(vector)
    addresses, width = machine.addresses(place), size * len(registers)
    if op.parts[0] == "st":
        columns = [machine.read_typed(name, f"b{8 * size}") for name in registers]
        data = np.ascontiguousarray(np.stack(columns, 1)).view(np.uint8)
        machine.store(shared, addresses, data, active)
        return
    found = machine.load(shared, addresses, width, active).view(f"u{size}")
    for i, name in enumerate(registers):
        column = found[:, i].astype(machine.register_type(name))
        machine.write(name, column, active)


@step("atom")
def add_atomically(machine: Machine, op: Instruction, active: Mask) -> None:
    if op.parts[-2:] != ("add", "u32"):
        raise Unknown(op.text)
    addresses, values = machine.addresses(op.operands[1]), machine.read(op.operands[2])
    old = np.zeros(machine.lanes, np.uint32)
    for lane in np.flatnonzero(active):
        here = addresses[lane : lane + 1]
        old[lane] = machine.memory.load(here, 4).view(np.uint32)[0, 0]
        total = (old[lane : lane + 1] + values[lane : lane + 1]).astype(np.uint32)
        machine.memory.store(here, total.view(np.uint8)[None])
    machine.write(op.operands[0], old, active)


@step("cp")
def copy_behind(machine: Machine, op: Instruction, active: Mask) -> None:
    """Copy from global to shared memory behind the threads' back, in groups that are waited for."""
    blocks = np.unique(machine.block_of[active])
    if op.parts[2] == "commit_group":
        machine.shared.commit_copies(blocks)
    elif op.parts[2] == "wait_group":
        machine.shared.wait_copies(blocks, int(op.operands[0], 0))
    else:
        target, source, size, *rest = op.operands
        count = int(size, 0)
        real = machine.read(rest[0]) if rest else machine.fill(count, 32)
        assert np.isin(real[active], (0, count)).all(), "a part of a copy"
        # Where nothing is to be read there are zeros.
        data = machine.load(False, machine.addresses(source), count, active & (real > 0))
        machine.shared.start_copy(
            machine.addresses(target)[active],
            data[active],
            machine.block_of[active],
            machine.warp_of[active],
        )


@step("ldmatrix", "stmatrix")
def move_matrices(machine: Machine, op: Instruction, active: Mask) -> None:
    """Move 8x8 matrices of halves: lane 8 i + r has the address of row r of matrix i, and lane l
    gets cells 2 (l mod 4) and the next of row l / 4 of each."""
    machine.whole_warps(active)
    vector, place = (op.operands[0], op.operands[1])[:: 1 if op.parts[0] == "ldmatrix" else -1]
    addresses, turned = machine.addresses(place), "trans" in op.parts
    for i, name in enumerate(split_vector(vector)):
        rows = (np.arange(machine.lanes) % WARP // 8 == i) & active
        if op.parts[0] == "ldmatrix":
            data = machine.load(True, addresses, 16, rows).view(np.uint16)
            matrix = data.reshape(-1, WARP, 8)[:, 8 * i : 8 * i + 8]
            matrix = matrix.transpose(0, 2, 1) if turned else matrix
            pairs = matrix[:, _LANE // 4][:, _LANE, :].reshape(-1, WARP, 4, 2)
            cells = pairs[:, _LANE, _LANE % 4]
            machine.write(name, np.ascontiguousarray(cells).view(np.uint32).reshape(-1), active)
        else:
            cells = machine.read(name).view(np.uint16).reshape(-1, WARP, 2)
            matrix = cells.reshape(-1, 8, 8)
            matrix = matrix.transpose(0, 2, 1) if turned else matrix
            data = np.zeros((machine.lanes // WARP, WARP, 8), np.uint16)
            data[:, 8 * i : 8 * i + 8] = matrix
            machine.store(True, addresses, data.reshape(-1, 8).view(np.uint8), rows)


# ---- warps ----


@step("shfl")
def shuffle(machine: Machine, op: Instruction, active: Mask) -> None:
    machine.whole_warps(active)
    name, _, predicate = op.operands[0].partition("|")
    values = machine.read(op.operands[1]).reshape(-1, WARP)
    reach, clamp = (machine.read(o).reshape(-1, WARP).astype(np.int64) for o in op.operands[2:4])
    fixed, limit = clamp >> 8 & 31, clamp & 31
    last, first = _LANE & fixed | limit & ~fixed, _LANE & fixed
    kind = op.parts[2]
    source = {
        "bfly": _LANE ^ reach,
        "up": _LANE - reach,
        "down": _LANE + reach,
        "idx": first | reach & 31 & ~fixed,
    }[kind]
    there = source >= last if kind == "up" else source <= last
    found = np.take_along_axis(values, np.where(there, source, _LANE), 1)
    machine.write(name, found.reshape(-1), active)
    if predicate:
        machine.write(predicate, there.reshape(-1), active)


@step("redux")
def reduce_warp(machine: Machine, op: Instruction, active: Mask) -> None:
    machine.whole_warps(active)
    kind = op.parts[-1]
    values = machine.read_typed(op.operands[1], kind).reshape(-1, WARP)
    reduce = {"add": np.sum, "max": np.max, "min": np.min, "or": np.bitwise_or.reduce,
              "and": np.bitwise_and.reduce}[op.parts[2]]  # fmt: skip
    found = np.asarray(reduce(values, axis=1)).astype(values.dtype)
    machine.write(op.operands[0], np.repeat(found, WARP), active)


@step("mma")
def multiply_matrices(machine: Machine, op: Instruction, active: Mask) -> None:
    """D = A B + C of halves, summed in float32: m16n8k16, or m16n8k8 of Turing."""
    shape = op.parts[3]
    if shape not in ("m16n8k16", "m16n8k8") or op.parts[-4:] != ("f32", "f16", "f16", "f32"):
        raise Unknown(op.text)
    machine.whole_warps(active)
    depth, warps = int(shape[6:]), machine.lanes // WARP
    row, pair = _LANE // 4, 2 * (_LANE % 4)
    out, a_names, b_names, c_names = map(split_vector, op.operands)

    def halves(name: str) -> np.ndarray:
        raw = np.ascontiguousarray(machine.read(name))
        return raw.view(np.float16).reshape(warps, WARP, 2).astype(np.float64)

    a, b, c = (np.zeros((warps, *size)) for size in ((16, depth), (depth, 8), (16, 8)))
    for i, name in enumerate(a_names):
        for cell in (0, 1):
            a[:, row + 8 * (i % 2), pair + cell + 8 * (i // 2)] = halves(name)[:, :, cell]
    for i, name in enumerate(b_names):
        for cell in (0, 1):
            b[:, pair + cell + 8 * i, row] = halves(name)[:, :, cell]
    for i, name in enumerate(c_names):
        values = machine.read_typed(name, "f32").reshape(warps, WARP)
        c[:, row + 8 * (i // 2), pair + i % 2] = values
    d = (a @ b + c).astype(np.float32)
    for i, name in enumerate(out):
        cells = np.ascontiguousarray(d[:, row + 8 * (i // 2), pair + i % 2])
        machine.write(name, cells.reshape(-1), active)


# ---- moves and choices ----


@step("mov")
def move(machine: Machine, op: Instruction, active: Mask) -> None:
    target, source = op.operands
    if target.startswith("{"):  # a wide register into narrow ones, the lowest first
        names = split_vector(target)
        kind = machine.register_type(names[0])
        raw = np.ascontiguousarray(machine.read(source))
        parts = raw.view(kind).reshape(machine.lanes, -1)
        for i, name in enumerate(names):
            machine.write(name, parts[:, i].copy(), active)
    elif source.startswith("{"):
        columns = [machine.read(name, 16) for name in split_vector(source)]
        joined = np.ascontiguousarray(np.stack(columns, 1))
        wide = joined.view(machine.register_type(target))
        machine.write(target, wide.reshape(-1), active)
    elif op.parts[-1] == "pred":
        machine.write(target, machine.read(source).astype(bool), active)
    else:
        bits = int(op.parts[-1].lstrip("bsuf"))
        values = machine.read(source, bits).astype(machine.register_type(target))
        machine.write(target, values, active)


@step("setp")
def compare(machine: Machine, op: Instruction, active: Mask) -> None:
    a, b = (machine.read_typed(o, op.parts[-1]) for o in op.operands[1:3])
    machine.write(op.operands[0], _COMPARE[op.parts[1]](a, b), active)


@step("selp")
def select(machine: Machine, op: Instruction, active: Mask) -> None:
    a, b = (machine.read_typed(o, op.parts[-1]) for o in op.operands[1:3])
    chosen = np.where(machine.read(op.operands[3]).astype(bool), a, b)
    machine.write(op.operands[0], chosen, active)


@step("cvt")
def convert(machine: Machine, op: Instruction, active: Mask) -> None:
    to, of = op.parts[-2:]
    if to == "f16x2":  # the first operand is the upper half
        high, low = (machine.read_typed(o, "f32").astype(np.float16) for o in op.operands[1:3])
        joined = np.ascontiguousarray(np.stack([low, high], 1)).view(np.uint32)
        machine.write(op.operands[0], joined.reshape(-1), active)
        return
    values = machine.read_typed(op.operands[1], of)
    letter = {"s": "i", "f": "f"}.get(to[0], "u")
    if of[0] == "f" and to[0] != "f":
        way = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[op.parts[1]]
        values = way(values)
    machine.write(op.operands[0], values.astype(f"{letter}{int(to[1:]) // 8}"), active)


# ---- arithmetic ----


@step(*{*_FLOAT, *_INTEGER, "shl", "shr", "bfe", "prmt", "rem", "lop3", "cnot", "popc"})
def compute(machine: Machine, op: Instruction, active: Mask) -> None:
    name, kind = op.parts[0], op.parts[-1]
    if kind == "pred":
        a = [machine.read(o).astype(bool) for o in op.operands[1:]]
        machine.write(op.operands[0], _INTEGER[name](*a), active)
    elif kind == "f32x2":
        pairs = [
            np.ascontiguousarray(machine.read(o, 64)).view(np.float32).astype(np.float64)
            for o in op.operands[1:]
        ]
        made = _FLOAT[name](*pairs).astype(np.float32)
        machine.write(op.operands[0], made.view(np.uint64), active)
    elif kind in ("f32", "f16"):
        a = [machine.read_typed(o, kind).astype(np.float64) for o in op.operands[1:]]
        rounded = _FLOAT[name](*a).astype(np.float32 if kind == "f32" else np.float16)
        machine.write(op.operands[0], rounded, active)
    elif kind == "f16x2":
        pairs = [
            np.ascontiguousarray(machine.read(o)).view(np.float16).astype(np.float64)
            for o in op.operands[1:]
        ]
        made = _FLOAT[name](*pairs).astype(np.float16)
        machine.write(op.operands[0], made.view(np.uint32), active)
    else:
        machine.write(op.operands[0], compute_integers(machine, op), active)


def compute_integers(machine: Machine, op: Instruction) -> np.ndarray:
    """Return the result of an instruction for integers of its type."""
    name, kind = op.parts[0], op.parts[-1]
    if name in ("shl", "shr"):
        values = machine.read_typed(op.operands[1], kind)
        bits = 8 * values.dtype.itemsize
        by = machine.read(op.operands[2]).astype(np.int64)
        fill = by >= bits
        by = np.minimum(by, bits - 1).astype(values.dtype)
        if name == "shr" and kind[0] == "s":
            return values >> by
        return np.where(fill, values.dtype.type(0), values << by if name == "shl" else values >> by)
    if name == "bfe":
        values = machine.read_typed(op.operands[1], kind).astype(np.int64)
        first, count = (machine.read(o).astype(np.int64) & 255 for o in op.operands[2:4])
        found = values >> first & (1 << count) - 1
        if kind == "s32":
            found = np.where(found >> count - 1 & 1, found - (1 << count), found)
        return found.astype(machine.read_typed("0", kind).dtype)
    if name == "prmt":
        both = np.stack([machine.read(o) for o in op.operands[1:3]], 1)
        data = np.ascontiguousarray(both).view(np.uint8)
        chosen = machine.read(op.operands[3])[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 15
        assert (chosen < 8).all(), "signs are not copied"
        return np.take_along_axis(data, chosen.astype(np.int64), 1).copy().view(np.uint32)[:, 0]
    if name in ("mul", "mad"):
        a, b = (machine.read_typed(o, kind) for o in op.operands[1:3])
        bits = 8 * a.dtype.itemsize
        wide = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{min(8, bits // 4)}").type
        if op.parts[1] == "wide":
            made = a.astype(wide) * b.astype(wide)
            rest = f"{kind[0]}{2 * bits}"
        elif op.parts[1] == "hi":
            made = ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
            rest = kind
        else:
            made, rest = a * b, kind
        return made + machine.read_typed(op.operands[3], rest) if name == "mad" else made
    if name in ("div", "rem"):
        a, b = (machine.read_typed(o, kind).astype(np.int64) for o in op.operands[1:3])
        whole = np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64)
        made = whole if name == "div" else a - whole * b
        return made.astype(machine.read_typed("0", kind).dtype)
    if name not in _INTEGER:
        raise Unknown(op.text)
    return _INTEGER[name](*(machine.read_typed(o, kind) for o in op.operands[1:]))


assert STEPS
