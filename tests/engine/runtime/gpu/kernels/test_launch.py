"""Which compiled kernel fits a GPU, and what a launch passes on."""

from dataclasses import replace

import pytest

from ......engine.errors import BackendError, BundleError
from ......engine.runtime.gpu.kernels.launch import (
    Kernel,
    KernelArchive,
    choose_architecture,
    find_archive,
)
from .....support.bundles import write_toy
from .....support.fake_gpu import SYMMETRIZE, FakeDriver, add_fake_kernels, pack_fake_archive

ALL = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"),
     ((9, 0), "sm_90"), ((10, 0), "sm_100"), ((10, 3), "sm_89"), ((12, 0), "sm_120"),
     ((12, 1), "sm_89"), ((7, 0), None), ((6, 1), None)],
)  # fmt: skip
def test_the_kernel_for_a_gpu(capability, wanted):
    assert choose_architecture(capability, ALL) == wanted


def test_older_code_will_do_unless_it_is_for_one_gpu():
    assert choose_architecture((8, 9), ["sm_75", "sm_80", "sm_120"]) == "sm_80"
    assert choose_architecture((8, 9), ["sm_75", "sm_90"]) == "sm_75"
    assert choose_architecture((10, 3), ["sm_90", "sm_100"]) is None
    assert choose_architecture((8, 0), ["sm_86"]) is None
    assert choose_architecture((8, 0), []) is None


def test_a_bundle_keeps_them(tmp_path):
    toy = write_toy(tmp_path / "toy.mx")
    assert find_archive(toy, (8, 0)) is None
    bundle = add_fake_kernels(toy, tmp_path / "with.zip")
    assert find_archive(bundle, (8, 9)).entries["symmetrize", "fp32"] == SYMMETRIZE
    assert find_archive(bundle, (9, 0)).entries  # its PTX, translated
    assert find_archive(bundle, (7, 5)) is None


@pytest.mark.parametrize("data", [b"", b"no zip", pack_fake_archive(SYMMETRIZE)[:-30]])
def test_a_damaged_archive(data):
    with pytest.raises(BundleError, match=r"is damaged .*; make the bundle again"):
        KernelArchive(data, "here")


def test_an_archive_of_another_form():
    with pytest.raises(BundleError, match="unknown argument"):
        KernelArchive(pack_fake_archive(replace(SYMMETRIZE, arguments=("i64",))), "here")


def test_an_old_driver_gets_the_ptx():
    driver, made = FakeDriver(), KernelArchive(pack_fake_archive(SYMMETRIZE), "here")
    driver.too_new = True
    Kernel(driver, made, SYMMETRIZE)
    (load,) = driver.calls("load")
    assert load[1] == b".version 8.0 symmetrize\0"


def test_wrong_arguments_never_reach_the_driver():
    driver, made = FakeDriver(), KernelArchive(pack_fake_archive(SYMMETRIZE), "here")
    kernel = Kernel(driver, made, SYMMETRIZE)
    with pytest.raises(TypeError, match="takes 20 arguments"):
        kernel.launch((1,), (1, 2), 0)
    aligned = replace(SYMMETRIZE, aligned=True)
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        Kernel(driver, made, aligned).launch((1,), (8, *[16] * 19), 0)
    assert not driver.calls("launch")
    kernel.close()
    assert driver.calls("unload")


def test_a_driver_that_fails_says_why(monkeypatch):
    class Old(FakeDriver):
        def load_module(self, image):
            raise BackendError("CUDA: cuModuleLoadData failed with CUDA_ERROR_NO_BINARY_FOR_GPU")

    with pytest.raises(BackendError, match="NO_BINARY_FOR_GPU"):
        Kernel(Old(), KernelArchive(pack_fake_archive(SYMMETRIZE), "here"), SYMMETRIZE)
