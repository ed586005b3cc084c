"""The GPU kernels, compiled ahead of time for each generation of GPUs; needs no GPU.

The only module that calls Triton's compiler. What it makes is launched by `mx_align.engine.runtime.gpu.kernels.
launch` and put into TensorRT engines by `mx_align.engine.runtime.gpu.kernel_ops`, neither of which knows
Triton.
"""

import importlib.util
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..engine.errors import MxError
from ..engine.runtime.gpu.kernels import KERNELS
from ..engine.runtime.gpu.kernels.launch import INDEX, Entry, archive_name

# Turing, Ampere (A100; RTX 30), Ada, Hopper, Blackwell (B200; RTX 50), and the oldest PTX version
# that knows them: drivers read PTX and cubins of older versions, never of newer ones.
ARCHITECTURES = {
    "sm_75": 80, "sm_80": 80, "sm_86": 80, "sm_89": 80, "sm_90": 80, "sm_100": 86, "sm_120": 87,
}  # fmt: skip
HEAD_WIDTHS = range(32, 129)  # of the attention kernels
MAX_HEADS = 16
DTYPES = {"fp16": "*fp16", "bf16": "*bf16", "fp32": "*fp32"}

_INTS = ("lengths_ptr", "src_words_ptr", "tgt_words_ptr", "spans_ptr", "total_ptr", "counts_ptr",
         "starts_ptr", "links_ptr")  # fmt: skip
_FLOATS = ("weights_ptr", "null_ptr", "scores_ptr", "sentence_ptr")


@dataclass(frozen=True)
class Variant:
    """A kernel with everything fixed that is fixed when it is compiled."""

    kernel: str
    dtype: str
    constants: tuple[tuple[str, int], ...]
    warps: int

    @property
    def name(self) -> str:
        width = dict(self.constants).get("HEAD")
        return ".".join([self.kernel, self.dtype, *([str(width)] if width else [])])


@dataclass(frozen=True)
class Compiled:
    """What came out of the compiler for one architecture."""

    entry: Entry
    ptx: str
    cubin: bytes
    registers: int
    spilled: int  # bytes


# ---- which variants ----


def variants(
    heads: int, head_width: int, architecture: str, dtypes: Iterable[str] = ("fp16",)
) -> list[Variant]:
    """Those that a model of this shape needs. Its graphs leave weights in float32, so
    `symmetrize` is needed in that type alone."""
    tile = (("SRC", 8), ("TGT", 32), ("WITH_SENTENCE", 1))
    # Two cells a thread: with one (8 warps) ptxas went for so few registers that it spilled.
    found = [Variant("symmetrize", "fp32", tile, warps=4)]
    if head_width not in HEAD_WIDTHS or heads > MAX_HEADS:
        return found
    for dtype in dtypes:
        # Float32 products, and all on Turing, keep whole rows of their operands in registers:
        # larger tiles, or fewer warps to share them, spilled.
        small = dtype == "fp32" or architecture == "sm_75"
        found.append(static_attention(head_width, dtype, small))
        found.append(leaky_attention(heads, head_width, dtype, small))
    return found


def static_attention(width: int, dtype: str, small: bool) -> Variant:
    # Sentences have 20 to 40 pieces: larger tiles of rows would be half empty.
    tile = 16 if small else 32
    sizes = {"HEAD": width, "HEAD_BLOCK": _power(width), "ROWS": tile, "KEYS": tile, "WIDEN": 0}
    return Variant("static_attention", dtype, tuple(sizes.items()), warps=4)


def leaky_attention(heads: int, width: int, dtype: str, small: bool) -> Variant:
    sizes = {
        "HEADS": heads, "HEADS_BLOCK": 1 << (heads - 1).bit_length(), "HEAD": width,
        "HEAD_BLOCK": _power(width), "ROWS": 16, "KEYS": 16 if small else 32, "WITH_NULL": 1,
        "WIDEN": 0,
    }  # fmt: skip
    return Variant("leaky_attention", dtype, tuple(sizes.items()), warps=8 if small else 4)


def _power(number: int) -> int:
    return max(16, 1 << (number - 1).bit_length())


# ---- compiling ----


def compile_variant(variant: Variant, architecture: str) -> Compiled:
    """PTX and cubin of a kernel. Needs triton, no GPU."""
    made = _triton(variant, architecture)
    name = made.metadata.name
    ptx = without_scratch(made.asm["ptx"], name)
    cubin, registers, spilled = _assemble(ptx)
    signature = _signature(variant)
    entry = Entry(
        variant.kernel,
        variant.dtype,
        variant.name,
        name,
        tuple(kind for kind in signature.values() if kind != "constexpr"),
        dict(variant.constants),
        32 * variant.warps,
        made.metadata.shared,
        _aligned(variant),
    )
    return Compiled(entry, ptx, cubin, registers, spilled)


def _source(kernel: str) -> Any:
    return getattr(importlib.import_module(f"mx_align.engine.runtime.gpu.kernels.{kernel}"), kernel)


def _signature(variant: Variant) -> dict[str, str]:
    constants = dict(variant.constants)
    return {name: _type(name, variant, constants) for name in _source(variant.kernel).arg_names}


def _type(name: str, variant: Variant, constants: dict[str, int]) -> str:
    if name in constants:
        return "constexpr"
    if name == "threshold":
        return "fp32"
    if not name.endswith("_ptr"):
        return "i32"
    if name in _INTS:
        return "*i32"
    return "*fp32" if name in _FLOATS else DTYPES[variant.dtype]


def _aligned(variant: Variant) -> bool:
    """Whether pointers and strides are promised to be multiples of 16, for wide loads. Whoever
    launches the kernel keeps the promise."""
    return variant.kernel != "symmetrize" and dict(variant.constants)["HEAD"] % 16 == 0


def _triton(variant: Variant, architecture: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Line numbers would carry the names of this machine's folders into the bundle.
    triton.knobs.compilation.disable_line_info = True
    signature = _signature(variant)
    constants = {
        name: bool(value) if name.startswith("WI") else value for name, value in variant.constants
    }
    hints = {}
    if _aligned(variant):
        hints = {
            (place,): [["tt.divisibility", 16]]
            for place, (name, kind) in enumerate(signature.items())
            if kind in DTYPES.values() or name.startswith("stride_")
        }
    source = ASTSource(
        fn=_source(variant.kernel), signature=signature, constexprs=constants, attrs=hints
    )
    target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
    options = {"num_warps": variant.warps, "num_stages": 2, "enable_fp_fusion": True,
               "ptx_version": ARCHITECTURES[architecture]}  # fmt: skip
    return triton.compile(source, target=target, options=options)


def without_scratch(ptx: str, name: str) -> str:
    """The PTX without the two scratch pointers that Triton adds behind the arguments: TensorRT
    passes no more than the op has, and our kernels use none."""
    head, _, rest = ptx.partition(f".entry {name}(")
    parameters, _, body = rest.partition("\n)")
    lines = parameters.strip("\n").split(",\n")
    names = [line.split()[-1] for line in lines]
    if len(names) < 2 or any(re.search(rf"\[{one}\b", body) for one in names[-2:]):
        raise MxError(f"the kernel {name} uses scratch memory, which its callers do not give it")
    return f"{head}.entry {name}(\n" + ",\n".join(lines[:-2]) + "\n)" + body


def _assemble(ptx: str) -> tuple[bytes, int, int]:
    """The cubin, its registers per thread and the bytes it spills."""
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


# ---- into the bundle ----


def check_architectures(names: Iterable[str]) -> tuple[str, ...]:
    """The architectures, or an error that names a wrong one."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in ARCHITECTURES:
            raise MxError(f"no kernels for {name!r}; there are {', '.join(ARCHITECTURES)}")
    return found


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def kernel_files(
    heads: int,
    head_width: int,
    architectures: Iterable[str],
    report: Callable[[str], None],
    attention: bool = True,
) -> dict[str, bytes]:
    """The files of a bundle that hold the kernels for a model of this shape; a model that has no
    attention needs those of its links alone."""
    files: dict[str, bytes] = {}
    wanted: list[Variant] = []
    for architecture in architectures:
        wanted = variants(heads, head_width, architecture, ("fp16",) if attention else ())
        compiled = [compile_variant(variant, architecture) for variant in wanted]
        files[archive_name(architecture)] = archive(compiled)
    if not files:
        return files
    expected = KERNELS if attention else ("symmetrize",)
    absent = sorted(set(expected) - {variant.kernel for variant in wanted})
    shape = f"{heads} heads of width {head_width}"
    left = f"; none for {shape}: {', '.join(absent)}" if absent else ""
    report(f"kernels: {', '.join(v.name for v in wanted)} for {', '.join(files)}{left}")
    return files


def archive(compiled: list[Compiled]) -> bytes:
    """One zip file of an architecture's kernels; equal kernels give equal bytes."""
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
