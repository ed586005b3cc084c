"""Compile the GPU kernels ahead of time for each generation of GPUs; needs no GPU.

The only module that calls Triton's compiler. What it makes is launched by the engine, or put into
TensorRT plans by it, without Triton.
"""

import importlib
import importlib.util
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..engine.errors import MxError
from ..engine.runtime.gpu.kernels import KERNELS
from ..engine.runtime.gpu.kernels.launch import INDEX, KernelEntry, archive_name

# Turing, Ampere (A100; RTX 30), Ada, Hopper, Blackwell (B200; RTX 50), and the oldest PTX version
# that knows them: drivers read PTX and cubins of older versions, never of newer ones.
ARCHITECTURES = {
    "sm_75": 80, "sm_80": 80, "sm_86": 80, "sm_89": 80, "sm_90": 80, "sm_100": 86, "sm_120": 87,
}  # fmt: skip
HEAD_WIDTHS = range(32, 129)  # of the attention kernels
MAX_HEADS = 16

# Arguments whose type does not follow that of the model.
_FIXED_TYPES = {
    "lengths_ptr": "*i32", "src_words_ptr": "*i32", "tgt_words_ptr": "*i32", "spans_ptr": "*i32",
    "total_ptr": "*i32", "counts_ptr": "*i32", "starts_ptr": "*i32", "links_ptr": "*i32",
    "weights_ptr": "*fp32", "null_ptr": "*fp32", "scores_ptr": "*fp32", "sentence_ptr": "*fp32",
    "threshold": "fp32",
}  # fmt: skip


@dataclass(frozen=True)
class KernelVariant:
    """A kernel with everything fixed that is fixed when it is compiled."""

    kernel: str
    dtype: str
    constants: Mapping[str, int]
    warps: int

    @property
    def name(self) -> str:
        width = self.constants.get("HEAD")
        return f"{self.kernel}.{self.dtype}" + (f".{width}" if width else "")

    @property
    def is_aligned(self) -> bool:
        """Whether pointers and strides are promised to be multiples of 16, for wide loads. Whoever
        launches the kernel keeps the promise."""
        return self.kernel != "symmetrize" and self.constants["HEAD"] % 16 == 0


@dataclass(frozen=True)
class CompiledKernel:
    """What came out of the compiler for one architecture."""

    entry: KernelEntry
    ptx: str
    cubin: bytes
    registers: int
    spilled: int  # bytes


# ---- which variants ----


def list_variants(
    heads: int, head_width: int, architecture: str, dtypes: Iterable[str] = ("fp16",)
) -> list[KernelVariant]:
    """List the kernels that a model of this shape needs.

    Its graphs leave weights in float32, so `symmetrize` is needed in that type alone.
    """
    tile = {"SRC": 8, "TGT": 32, "WITH_SENTENCE": 1}
    # Two cells a thread: with one (8 warps) ptxas went for so few registers that it spilled.
    found = [KernelVariant("symmetrize", "fp32", tile, warps=4)]
    if head_width not in HEAD_WIDTHS or heads > MAX_HEADS:
        return found
    head_sizes = {"HEAD": head_width, "HEAD_BLOCK": max(16, _next_power_of_two(head_width))}
    for dtype in dtypes:
        # Float32 products, and all on Turing, keep whole rows of their operands in registers:
        # larger tiles, or fewer warps to share them, spilled.
        small = dtype == "fp32" or architecture == "sm_75"
        # Sentences have 20 to 40 pieces: larger tiles of rows would be half empty.
        rows = 16 if small else 32
        static = {**head_sizes, "ROWS": rows, "KEYS": rows, "WIDEN": 0}
        leaky = {
            "HEADS": heads, "HEADS_BLOCK": _next_power_of_two(heads), **head_sizes, "ROWS": 16,
            "KEYS": 16 if small else 32, "WITH_NULL": 1, "WIDEN": 0,
        }  # fmt: skip
        found.append(KernelVariant("static_attention", dtype, static, warps=4))
        warps = 8 if small else 4
        found.append(KernelVariant("leaky_attention", dtype, leaky, warps=warps))
    return found


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


# ---- compiling ----


def compile_variant(variant: KernelVariant, architecture: str) -> CompiledKernel:
    """Compile a kernel to PTX and cubin. Needs triton, no GPU."""
    made = _compile_with_triton(variant, architecture)
    name = made.metadata.name
    ptx = remove_scratch_arguments(made.asm["ptx"], name)
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
    module = importlib.import_module(f"..engine.runtime.gpu.kernels.{kernel}", __package__)
    return getattr(module, kernel)


def argument_types(variant: KernelVariant) -> dict[str, str]:
    """Return Triton's types of a kernel's arguments by name; "constexpr" for what is fixed."""
    fixed = {**_FIXED_TYPES, **dict.fromkeys(variant.constants, "constexpr")}
    return {
        name: fixed.get(name, f"*{variant.dtype}" if name.endswith("_ptr") else "i32")
        for name in _load_source(variant.kernel).arg_names
    }


def _compile_with_triton(variant: KernelVariant, architecture: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Line numbers would carry the names of this machine's folders into the bundle.
    triton.knobs.compilation.disable_line_info = True
    types = argument_types(variant)
    constants = {
        name: bool(value) if name.startswith("WI") else value
        for name, value in variant.constants.items()
    }
    hints = {}
    if variant.is_aligned:
        hints = {
            (place,): [["tt.divisibility", 16]]
            for place, (name, kind) in enumerate(types.items())
            if kind in ("*fp16", "*bf16", "*fp32") or name.startswith("stride_")
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


# ---- into the bundle ----


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def choose_architectures(names: str | None, report: Callable[[str], None]) -> tuple[str, ...]:
    """Return the architectures of a list with commas, each once: of "none" none, of None all.

    Without triton None is none as well, which is reported.
    """
    if names == "none":
        return ()
    if names is None and not has_triton():
        report("kernels left out: triton is not installed (pip install triton)")
        return ()
    wanted = ARCHITECTURES if names is None else map(str.strip, names.split(","))
    found = tuple(dict.fromkeys(wanted))
    for name in found:
        if name not in ARCHITECTURES:
            raise MxError(f"no kernels for {name!r}; there are {', '.join(ARCHITECTURES)}")
    if not has_triton():
        raise MxError("--kernels needs triton; install: pip install triton")
    return found


def compile_kernels(
    heads: int,
    head_width: int,
    architectures: Iterable[str],
    report: Callable[[str], None],
    attention: bool = True,
) -> dict[str, bytes]:
    """Return the files of a bundle that hold the kernels for a model of this shape.

    A model that has no attention needs those of its links alone.
    """
    files: dict[str, bytes] = {}
    wanted: list[KernelVariant] = []
    for architecture in architectures:
        wanted = list_variants(heads, head_width, architecture, ("fp16",) if attention else ())
        compiled = [compile_variant(variant, architecture) for variant in wanted]
        files[archive_name(architecture)] = pack_archive(compiled)
    if not files:
        return files
    expected = KERNELS if attention else ("symmetrize",)
    absent = sorted(set(expected) - {variant.kernel for variant in wanted})
    shape = f"{heads} heads of width {head_width}"
    left = f"; none for {shape}: {', '.join(absent)}" if absent else ""
    report(f"kernels: {', '.join(v.name for v in wanted)} for {', '.join(files)}{left}")
    return files


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
