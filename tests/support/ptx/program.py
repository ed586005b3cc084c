"""Read PTX: one kernel as a list of instructions, with its parameters and labels."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TYPE_SIZES = {"u64": 8, "u32": 4, "f32": 4}


@dataclass(frozen=True)
class Instruction:
    """One instruction, like `@!%p1 add.s32 %r1, %r2, 4;`."""

    name: str  # "add.s32"
    parts: tuple[str, ...]  # ("add", "s32")
    operands: tuple[str, ...]  # ("%r1", "%r2", "4"); brackets and braces stay
    predicate: str  # "%p1", or "" for none
    negated: bool
    text: str


@dataclass(frozen=True)
class Program:
    """A kernel of a PTX module."""

    name: str
    parameters: tuple[tuple[str, str], ...]  # (type, name)
    threads: int  # of a block, as `.reqntid` demands
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # name: number of the instruction behind


def read_program(ptx: str, name: str) -> Program:
    """Read the kernel of this name; ValueError if the module has none."""
    _, found, rest = ptx.partition(f".entry {name}(")
    if not found:
        raise ValueError(f"there is no kernel {name}")
    head, _, body = rest.partition("\n)")
    parameters = tuple(
        (re.search(r"\.param \.(\w+)", line)[1], line.strip().rstrip(",").split()[-1])  # type: ignore[index]
        for line in head.strip("\n").split("\n")
    )
    body = re.sub(r"//[^\n]*", "", body)
    threads = int(re.search(r"\.reqntid (\d+)", body)[1])  # type: ignore[index]
    body = body[body.index("{") + 1 : body.rindex("}")]
    body = re.sub(r"(\$\w+):", r"\1:;", body)  # a label is a statement of its own
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for statement in body.replace("\n", " ").replace("\t", " ").split(";"):
        # Inline assembly stands in braces of its own.
        statement = re.sub(r"^[\s{}]+", "", statement).strip()
        if statement.endswith(":"):
            labels[statement[:-1]] = len(instructions)
        elif statement and not statement.startswith((".reg", ".pragma")):
            instructions.append(_read_instruction(statement))
    return Program(name, parameters, threads, tuple(instructions), labels)


def _read_instruction(statement: str) -> Instruction:
    guard = re.match(r"@(!?)(%\w+)\s+(.*)", statement)
    negated, predicate, plain = guard.groups() if guard else ("", "", statement)
    name, _, operands = plain.partition(" ")
    return Instruction(
        name, tuple(name.split(".")), split_operands(operands), predicate, bool(negated), statement
    )


def split_operands(text: str) -> tuple[str, ...]:
    """Split at commas that are in no brackets or braces."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return tuple(part.strip() for part in found if part.strip())


def split_vector(operand: str) -> list[str]:
    """Return the registers of `{%r1, %r2}`, or of a lone `%r1`."""
    return [part.strip() for part in operand.strip("{} ").split(",")]
