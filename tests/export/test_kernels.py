"""Every kernel compiles for every architecture without a GPU, in few registers and no spills."""

import re

import pytest

from ...engine.errors import MxError
from ...engine.runtime.gpu.kernels.launch import SHIPPED, archive_name
from ...export import kernels
from ...export.kernels import ARCHITECTURES, compile_variant, list_variants, pack_archive

pytest.importorskip("triton", reason="triton is not installed")

# Above 128 registers a thread, fewer than 4 blocks of 4 warps fit on a multiprocessor.
MOST_REGISTERS = {"symmetrize": 128, "student_embed": 64, "student_layer": 255,
                  "student_project": 128, "student_scores": 128}  # fmt: skip


def check_compiled(made: kernels.CompiledKernel, architecture: str) -> None:
    entry = made.entry
    assert made.spilled == 0
    assert made.registers <= MOST_REGISTERS[entry.kernel], made.registers
    assert entry.shared <= 48 << 10  # more would need leave on every GPU
    assert made.cubin[:4] == b"\x7fELF"
    assert re.search(rf"^\.target {architecture}a?$", made.ptx, re.MULTILINE)
    parameters = made.ptx.partition(f".entry {entry.entry}(")[2].partition("\n)")[0]
    kinds = re.findall(r"\.param \.(\w+)", parameters)
    wanted = {"i32": "u32", "fp32": "f32"}
    assert kinds == [wanted.get(kind, "u64") for kind in entry.arguments]
    assert ".loc" not in made.ptx and ".file" not in made.ptx  # no folder names


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_for_every_architecture(architecture: str) -> None:
    """And what ships is what the source gives today."""
    made = [compile_variant(variant, architecture) for variant in list_variants(architecture)]
    for one in made:
        check_compiled(one, architecture)
    shipped = (SHIPPED / archive_name(architecture)).read_bytes()
    assert shipped == pack_archive(made), "python -m mx_align.export.kernels makes it again"


def test_used_scratch_is_refused() -> None:
    ptx = ".visible .entry k(\n\t.param .u64 a,\n\t.param .u64 b,\n\t.param .u64 c\n)\n{ %s }"
    assert kernels.remove_scratch_arguments(ptx % "[a]", "k").count(".param") == 1
    with pytest.raises(MxError, match="uses scratch memory"):
        kernels.remove_scratch_arguments(ptx % "ld [c]", "k")
