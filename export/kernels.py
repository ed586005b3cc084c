"""Compile the GPU kernels ahead of time for each generation of GPUs; needs no GPU.

The only module that calls Triton's compiler. What it makes comes with the package and is launched
by the engine without Triton. After a change of a kernel, make it again:

    python -m mx_align.export.kernels
"""

import hashlib
import importlib
import importlib.util
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..engine.errors import MxError
from ..engine.runtime.gpu.kernels.launch import INDEX, SHIPPED, KernelEntry, archive_name

# Turing, Ampere (A100; RTX 30), Ada, Hopper, Blackwell (B200; RTX 50), and the oldest PTX version
# that knows them: drivers read PTX and cubins of older versions, never of newer ones.
ARCHITECTURES = {
    "sm_75": 80, "sm_80": 80, "sm_86": 80, "sm_89": 80, "sm_90": 80, "sm_100": 86, "sm_120": 87,
}  # fmt: skip
STUDENT_WIDTHS = (128,)
# Arguments that are no float32 pointers and no integers.
_INTEGERS = ("src_words_ptr", "tgt_words_ptr", "spans_ptr", "total_ptr", "counts_ptr",
             "starts_ptr", "links_ptr", "ids_ptr", "words_ptr", "places_ptr")  # fmt: skip
_HALVES = ("table_ptr", "up_ptr", "down_ptr", "weight_ptr", "query_ptr", "key_ptr")


@dataclass(frozen=True)
class KernelVariant:
    """A kernel with everything fixed that is fixed when it is compiled."""

    kernel: str
    dtype: str
    constants: Mapping[str, int]
    warps: int
    # Whether pointers are promised to be multiples of 16 bytes, for wide loads. Whoever launches
    # the kernel keeps the promise.
    is_aligned: bool = False

    @property
    def name(self) -> str:
        width = self.constants.get("WIDTH")
        return f"{self.kernel}.{self.dtype}" + (f".{width}" if width else "")


@dataclass(frozen=True)
class CompiledKernel:
    """What came out of the compiler for one architecture."""

    entry: KernelEntry
    ptx: str
    cubin: bytes
    registers: int
    spilled: int  # bytes


# ---- which variants ----


def list_variants(architecture: str) -> list[KernelVariant]:
    """List the kernels that come with the package."""
    tile = {"SRC": 8, "TGT": 32, "WITH_SENTENCE": 1}
    # Two cells a thread: with one (8 warps) ptxas went for so few registers that it spilled.
    found = [KernelVariant("symmetrize", "fp32", tile, warps=4)]
    if architecture == "sm_75":
        return found  # Triton multiplies there without tensor cores, and registers spill
    for width in STUDENT_WIDTHS:
        rows = {"WIDTH": width, "ROWS": 32}
        pair = {"WIDTH": width, "ROWS": 16, "KEYS": 32, "CELLS": 32, "CHANNELS": 16}
        found += [
            KernelVariant("student_embed", "fp16", rows, warps=4, is_aligned=True),
            # Rows of a tile and those beside them stay in registers: of 8 warps, or they spill.
            KernelVariant("student_layer", "fp16", {**rows, "HIDDEN": 32}, 8, True),
            KernelVariant("student_project", "fp16", rows, warps=4, is_aligned=True),
            KernelVariant("student_scores", "fp16", pair, warps=4, is_aligned=True),
        ]
    return found


# ---- compiling ----


def compile_variant(variant: KernelVariant, architecture: str) -> CompiledKernel:
    """Compile a kernel to PTX and cubin. Needs triton, no GPU."""
    made = _compile_with_triton(variant, architecture)
    plain = remove_scratch_arguments(made.asm["ptx"], made.metadata.name)
    # A name for each code: tools and caches that go by names cannot take one kernel for another.
    name = f"{variant.kernel}_{hashlib.sha256(plain.encode()).hexdigest()[:12]}"
    ptx = re.sub(rf"\b{made.metadata.name}\b", name, plain)
    cubin, registers, spilled = _assemble_ptx(ptx)
    entry = KernelEntry(
        variant.kernel,
        variant.dtype,
        variant.name,
        name,
        tuple(kind for kind in argument_types(variant).values() if kind != "constexpr"),
        variant.constants,
        32 * variant.warps,
        made.metadata.shared,
        variant.is_aligned,
    )
    return CompiledKernel(entry, ptx, cubin, registers, spilled)


def _load_source(kernel: str) -> Any:
    """Return the Triton function; importing it needs triton."""
    module = kernel.partition("_")[0]
    source = importlib.import_module(f"..engine.runtime.gpu.kernels.{module}", __package__)
    return getattr(source, kernel)


def argument_types(variant: KernelVariant) -> dict[str, str]:
    """Return Triton's types of a kernel's arguments by name; "constexpr" for what is fixed."""
    found = {}
    for name in _load_source(variant.kernel).arg_names:
        if name in variant.constants:
            found[name] = "constexpr"
        elif not name.endswith("_ptr"):
            found[name] = "fp32" if name == "threshold" else "i32"
        elif name in _HALVES or (variant.kernel, name) == ("student_project", "out_ptr"):
            found[name] = "*fp16"
        elif name in _INTEGERS:
            found[name] = "*i32"
        else:
            found[name] = "*fp32"
    return found


def _compile_with_triton(variant: KernelVariant, architecture: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Line numbers would carry the names of this machine's folders into the bundle.
    triton.knobs.compilation.disable_line_info = True
    types = argument_types(variant)
    constants = {
        name: bool(value) if name.startswith("WITH_") else value
        for name, value in variant.constants.items()
    }
    hints = {}
    if variant.is_aligned:
        hints = {
            (place,): [["tt.divisibility", 16]]
            for place, kind in enumerate(types.values())
            if kind.startswith("*")
        }
    source = ASTSource(
        fn=_load_source(variant.kernel), signature=types, constexprs=constants, attrs=hints
    )
    target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
    options = {"num_warps": variant.warps, "num_stages": 2, "enable_fp_fusion": True,
               "ptx_version": ARCHITECTURES[architecture]}  # fmt: skip
    return triton.compile(source, target=target, options=options)


def remove_scratch_arguments(ptx: str, name: str) -> str:
    """Return the PTX without the two scratch pointers that Triton adds behind the arguments.

    TensorRT passes no more than the op has, and our kernels use none.
    """
    head, _, rest = ptx.partition(f".entry {name}(")
    parameters, _, body = rest.partition("\n)")
    lines = parameters.strip("\n").split(",\n")
    names = [line.split()[-1] for line in lines]
    if len(names) < 2 or any(re.search(rf"\[{one}\b", body) for one in names[-2:]):
        raise MxError(f"the kernel {name} uses scratch memory, which its callers do not give it")
    return f"{head}.entry {name}(\n" + ",\n".join(lines[:-2]) + "\n)" + body


def _assemble_ptx(ptx: str) -> tuple[bytes, int, int]:
    """Return the cubin, its registers per thread and the bytes it spills."""
    import triton

    # The assembler of CUDA 12.9 knows all our architectures, and drivers of CUDA 12 read it.
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, "utf-8")
        command = [str(assembler), "-v", "-arch", target[1], str(source), "-o", str(result)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MxError(f"ptxas cannot assemble a kernel: {done.stderr.strip()[:300]}")
        used = re.search(r"Used (\d+) registers", done.stderr)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
        assert used and spills, done.stderr
        return result.read_bytes(), int(used[1]), int(spills[1]) + int(spills[2])


# ---- into archives ----


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def pack_archive(compiled: list[CompiledKernel]) -> bytes:
    """Pack an architecture's kernels into one zip file; equal kernels give equal bytes."""
    written = io.BytesIO()
    index = [asdict(one.entry) for one in compiled]
    content = {INDEX: json.dumps(index, indent=1).encode()}
    for one in compiled:
        content[f"{one.entry.name}.cubin"] = one.cubin
        content[f"{one.entry.name}.ptx"] = one.ptx.encode()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def write_shipped(folder: Path = SHIPPED) -> None:
    """Compile what comes with the package into a folder, one archive for each architecture."""
    folder.mkdir(exist_ok=True)
    for architecture in ARCHITECTURES:
        made = [compile_variant(v, architecture) for v in list_variants(architecture)]
        (folder / archive_name(architecture)).write_bytes(pack_archive(made))


if __name__ == "__main__":
    write_shipped()
