"""Every kernel compiles for every architecture without a GPU, in few registers and no spills."""

import re

import pytest

from ...engine.errors import MxError
from ...export import kernels
from ...export.kernels import ARCHITECTURES, compile_variant, list_variants

pytest.importorskip("triton", reason="triton is not installed")

# Above 128 registers a thread, fewer than 4 blocks of 4 warps fit on a multiprocessor.
MOST_REGISTERS = {"symmetrize": 128, "static_attention": 168, "leaky_attention": 168}


# Turing keeps whole operands of a product in registers: leaky_attention.fp32.96 takes 170.
MORE_ON = {"sm_75": 8}


def check_compiled(made: kernels.CompiledKernel, architecture: str) -> None:
    entry = made.entry
    assert made.spilled == 0
    most = MOST_REGISTERS[entry.kernel] + MORE_ON.get(architecture, 0)
    assert made.registers <= most, made.registers
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
    for variant in list_variants(4, 64, architecture):
        check_compiled(compile_variant(variant, architecture), architecture)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_width", [32, 48, 96, 128])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_width_and_type(architecture: str, head_width: int, dtype: str) -> None:
    if architecture == "sm_75" and dtype == "bf16":
        pytest.skip("GPUs of that age have no bfloat16")
    for variant in list_variants(8, head_width, architecture, [dtype])[1:]:
        check_compiled(compile_variant(variant, architecture), architecture)


def test_what_a_model_needs() -> None:
    names = [variant.name for variant in list_variants(4, 64, "sm_80")]
    assert names == ["symmetrize.fp32", "static_attention.fp16.64", "leaky_attention.fp16.64"]
    assert [v.name for v in list_variants(2, 8, "sm_80")] == ["symmetrize.fp32"]  # heads too narrow


def test_a_model_without_attention_needs_its_links_alone(monkeypatch) -> None:
    asked = []

    def compiled(variant, architecture):
        asked.append(variant.name)
        return variant

    monkeypatch.setattr(kernels, "compile_variant", compiled)
    monkeypatch.setattr(kernels, "pack_archive", lambda made: b"zip")
    said: list[str] = []
    assert set(kernels.compile_kernels(4, 64, ["sm_80"], said.append, attention=False)) == {
        "kernels.sm_80.zip"
    }
    assert asked == ["symmetrize.fp32"] and "none for" not in said[0]
    kernels.compile_kernels(4, 64, ["sm_80"], said.append)
    assert len(asked) == 4


def test_used_scratch_is_refused() -> None:
    ptx = ".visible .entry k(\n\t.param .u64 a,\n\t.param .u64 b,\n\t.param .u64 c\n)\n{ %s }"
    assert kernels.remove_scratch_arguments(ptx % "[a]", "k").count(".param") == 1
    with pytest.raises(MxError, match="uses scratch memory"):
        kernels.remove_scratch_arguments(ptx % "ld [c]", "k")


def test_architectures_are_checked_and_kept() -> None:
    assert kernels.choose_architectures("sm_80, sm_90,sm_80", print) == ("sm_80", "sm_90")
    assert kernels.choose_architectures("none", print) == ()
    assert kernels.choose_architectures(None, print) == tuple(ARCHITECTURES)


def test_without_triton_there_are_none_which_is_said(monkeypatch) -> None:
    monkeypatch.setattr(kernels, "has_triton", lambda: False)
    said: list[str] = []
    assert kernels.choose_architectures(None, said.append) == ()
    assert said == ["kernels left out: triton is not installed (pip install triton)"]
    with pytest.raises(MxError, match="--kernels needs triton"):
        kernels.choose_architectures("sm_80", print)


def test_unknown_architecture() -> None:
    with pytest.raises(MxError, match="no kernels for 'sm_60'"):
        kernels.choose_architectures("sm_80,sm_60", print)
