"""What `mx-doctor` runs, and a little more, on a real GPU: `pytest -m gpu`. Skipped elsewhere."""

import random

import pytest

from .....engine.aligner import Aligner
from .....engine.commands.doctor import examine_machine
from .....engine.links.scoring import link_f1
from .....engine.runtime.examination import LEAST_GPU_F1, examine_backends
from .....engine.runtime.gpu.cuda_driver import Driver
from .....engine.runtime.gpu.devices import Device
from .....engine.runtime.gpu.kernel_checks import check_kernels
from .....engine.runtime.gpu.kernels.launch import find_archive
from ....support.bundles import write_for_gpus
from ....support.stub_libraries import gpu_reason

LINE = "the cat sat on the mat die Katze saß auf der Matte hello"
WORDS = LINE.split(" ")


WHY_NOT = gpu_reason()
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "none")]


def on_gpu(function):
    for mark in needs_gpu:
        function = mark(function)
    return function


def corpus(n: int) -> tuple[list[str], list[str]]:
    rng = random.Random(1)
    sides = [[" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(n)] for _ in "st"]
    return sides[0], sides[1]


def runnable() -> list[str]:
    return [one.backend for one in examine_backends() if one.runs and one.backend != "cpu"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    pytest.importorskip("torch", reason="torch is not installed")
    return write_for_gpus(tmp_path_factory.mktemp("gpu") / "gpu.mx")


@pytest.mark.slow
def test_the_bundle_of_these_tests_aligns_on_the_cpu(tmp_path):
    """So that a mistake in it does not wait for a GPU to be seen."""
    pytest.importorskip("torch", reason="torch is not installed")
    made = write_for_gpus(tmp_path / "gpu.mx")
    src, tgt = corpus(20)
    exact = [set(a.links) for a in Aligner.load(made.path, backend="cpu").align(src, tgt)]
    half = Aligner.load(made.path, backend="cpu", dtype="fp16").align(src, tgt)
    assert sum(map(len, exact)) > 20
    assert link_f1([set(a.links) for a in half], exact) > LEAST_GPU_F1


@on_gpu
def test_every_kernel_against_its_twin():
    driver = Driver()
    for number in range(driver.count_devices()):
        device = Device(driver, number)
        archive = find_archive(device.capability)
        assert archive is not None, device.capability
        found = list(check_kernels(device, archive, repeats=2))
        assert all(one.is_good for one in found), found


@on_gpu
def test_what_the_doctor_says(bundle):
    said: list[str] = []
    assert examine_machine(str(bundle.path), said.append), "\n".join(said)


@on_gpu
@pytest.mark.parametrize("backend", ["trt", "trt-rtx", "cuda"])
def test_links_are_those_of_the_cpu_also_in_little_memory(bundle, backend):
    if backend not in runnable():
        pytest.skip(f"{backend} does not run here")
    src, tgt = corpus(3000)
    exact = Aligner.load(bundle.path, backend="cpu", dtype="fp32").align(src, tgt)
    wanted = [set(one.links) for one in exact]
    for memory in (None, 256 << 20):
        aligner = Aligner.load(bundle.path, backend=backend, gpu_memory=memory)
        found = [set(one.links) for one in aligner.align(src, tgt)]
        assert link_f1(found, wanted) > LEAST_GPU_F1, aligner.describe()
