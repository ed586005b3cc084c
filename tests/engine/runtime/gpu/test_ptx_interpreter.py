"""The interpreter of PTX itself: small kernels whose results are known, and faults it must see."""

import numpy as np
import pytest

from ....support.ptx.machine import Unknown, run_blocks
from ....support.ptx.memory import GlobalMemory, MemoryFault
from ....support.ptx.program import read_program, split_operands

HEAD = """
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u32 k_param_1
)
.reqntid 64
{
	.reg .b32 %r<9>;
	ld.param.b64 %rd1, [k_param_0];
	ld.param.b32 %r9, [k_param_1];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	shl.b32 %r2, %r1, 2;
"""


def run(body: str, shared: int = 256, number: int = 7, blocks: int = 1) -> np.ndarray:
    """Run a kernel of 64 threads over 64 cells of memory; return them."""
    raw = np.zeros(256, np.uint8)
    program = read_program(f"{HEAD}{body}\n\tret;\n}}", "k")
    memory = GlobalMemory(lambda: [(4096, raw)])
    run_blocks(program, (blocks, 1, 1), shared, (4096, number), memory)
    return raw.view(np.int32)


def test_arithmetic_and_branches():
    found = run("""
	setp.lt.s32 %p1, %r1, 10;
	@%p1 bra $L_1;
	mad.lo.s32 %r3, %r1, 2, %r9;
	bra.uni $L_2;
$L_1:
	mov.b32 %r3, -1;
$L_2:
	st.global.b32 [%rd3], %r3;""")
    places = np.arange(64)
    assert found.tolist() == np.where(places < 10, -1, 2 * places + 7).tolist()


def test_shared_memory_across_a_barrier():
    swap = """
	st.shared.b32 [%r2], %r1;
	{} 0;
	xor.b32 %r4, %r2, 128;
	ld.shared.b32 %r5, [%r4];
	st.global.b32 [%rd3], %r5;"""
    assert run(swap.format("bar.sync")).tolist() == [i ^ 32 for i in range(64)]
    with pytest.raises(MemoryFault, match=r"a race: .*; in k: ld\.shared"):
        run(swap.format("mov.b32 %r8,"))


@pytest.mark.parametrize(
    ("body", "fault"),
    [("st.global.b32 [%rd3+4], %r1;", "4 bytes at 0x1100 are not allocated"),
     ("st.global.b32 [%rd3+2], %r1;", "an access of 4 bytes at 0x1002"),
     ("ld.shared.b32 %r3, [%r2];", "that nobody wrote"),
     ("st.shared.b32 [%r2+4], %r1;", "bytes 4 to 260 of 256 shared ones"),
     ("st.shared.b32 [0], %r1;", "threads write different values"),
     ("@%p1 bra $L_1; bar.sync 0;\n$L_1:", None)],
)  # fmt: skip
def test_faults(body, fault):
    setup = "setp.lt.s32 %p1, %r1, 32;\n"
    with pytest.raises(AssertionError, match=fault or "do not reach"):
        run(setup + body)


def test_a_warp_that_is_not_together():
    with pytest.raises(AssertionError, match="not together"):
        run("setp.lt.s32 %p1, %r1, 5;\n@%p1 shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;")


def test_sums_over_a_warp_in_two_ways():
    found = run("""
	redux.sync.add.s32 %r3, %r1, -1;
	shfl.sync.up.b32 %r4|%p1, %r1, 1, 0, -1;
	add.s32 %r5, %r3, %r4;
	st.global.b32 [%rd3], %r5;""")
    lanes = np.arange(64)
    sums = np.where(lanes < 32, lanes[:32].sum(), lanes[32:].sum())
    before = np.where(lanes % 32 == 0, lanes, lanes - 1)
    assert found.tolist() == (sums + before).tolist()


def test_atomic_sums_of_several_blocks():
    found = run("atom.global.gpu.acq_rel.add.u32 %r3, [%rd1+0], 2;", blocks=70)
    assert found[0] == 2 * 64 * 70


def test_halves_are_multiplied_as_matrices():
    """16x16 times 16x8: each lane holds its fragment; A and B are read by ldmatrix."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    raw = np.concatenate([a.view(np.uint8).ravel(), b.view(np.uint8).ravel(), np.zeros(512, "u1")])
    body = """
	shl.b32 %r3, %r1, 4;
	cvt.u64.u32 %rd4, %r3;
	add.s64 %rd5, %rd1, %rd4;
	setp.lt.u32 %p1, %r1, 48;
	@%p1 ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd5];
	@%p1 st.shared.v4.b32 [%r3], {%r10, %r11, %r12, %r13};
	bar.sync 0;
	and.b32 %r4, %r1, 15;
	shl.b32 %r4, %r4, 5;
	and.b32 %r5, %r1, 16;
	add.s32 %r4, %r4, %r5;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r4];
	and.b32 %r6, %r1, 15;
	shl.b32 %r6, %r6, 4;
	add.s32 %r6, %r6, 512;
	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r24, %r25}, [%r6];
	mov.b32 %r30, 0f00000000;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r30, %r31, %r32, %r33}, \
{%r20, %r21, %r22, %r23}, {%r24, %r25}, {%r30, %r30, %r30, %r30};
	and.b32 %r7, %r1, 31;
	shl.b32 %r7, %r7, 3;
	cvt.u64.u32 %rd6, %r7;
	add.s64 %rd7, %rd1, %rd6;
	setp.lt.u32 %p2, %r1, 32;
	@%p2 st.global.v2.b32 [%rd7+768], {%r30, %r31};
	@%p2 st.global.v2.b32 [%rd7+1024], {%r32, %r33};"""
    program = read_program(f"{HEAD}{body}\n\tret;\n}}", "k")
    run_blocks(program, (1, 1, 1), 1024, (4096, 0), GlobalMemory(lambda: [(4096, raw)]))
    found = raw[768:].view(np.float32).reshape(16, 8)
    assert np.array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


def test_an_instruction_it_does_not_know_is_said():
    with pytest.raises(Unknown, match=r"vote\.ballot"):
        run("vote.ballot.sync.b32 %r3, %p1, -1;")


def test_operands_are_split_outside_brackets():
    assert split_operands("{%r1, %r2}, [%rd3+4], 5") == ("{%r1, %r2}", "[%rd3+4]", "5")
