"""Which compiled kernel fits a GPU, and what a launch passes on."""

import hashlib
from dataclasses import replace

import pytest

from ......engine.errors import BackendError
from ......engine.runtime.gpu.kernels.launch import (
    Kernel,
    KernelArchive,
    archive_name,
    choose_architecture,
    find_archive,
)
from .....support.fake_gpu import SYMMETRIZE, FakeDriver, pack_fake_archive

ALL = [archive_name(f"sm_{n}") for n in (75, 80, 86, 89, 90, 100, 120)]


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"),
     ((9, 0), "sm_90"), ((10, 0), "sm_100"), ((10, 3), "sm_89"), ((12, 0), "sm_120"),
     ((12, 1), "sm_89"), ((7, 0), None), ((6, 1), None)],
)  # fmt: skip
def test_the_kernel_for_a_gpu(capability, wanted):
    assert choose_architecture(capability, ALL) == (wanted and archive_name(wanted))


def test_older_code_will_do_unless_it_is_for_one_gpu():
    def choose(capability, *numbers):
        return choose_architecture(capability, [archive_name(f"sm_{n}") for n in numbers])

    assert choose((8, 9), 75, 80, 120) == "kernels.sm_80.zip"
    assert choose((8, 9), 75, 90) == "kernels.sm_75.zip"
    assert choose((10, 3), 90, 100) is None
    assert choose((8, 0), 86) is None
    assert choose((8, 0)) is None


def test_the_package_brings_them():
    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)):
        archive = find_archive(capability)
        entry = archive.entries["symmetrize"]
        assert entry.arguments == SYMMETRIZE.arguments
        cubin = archive.cubin(entry)
        assert cubin[:4] == b"\x7fELF" and entry.entry.encode() in cubin
        assert archive.ptx(entry).count(f".entry {entry.entry}(".encode()) == 1
    assert find_archive((13, 0)).ptx(entry)  # for the driver of a later GPU to translate
    assert find_archive((7, 0)) is None


def test_a_name_says_which_code_it_is():
    names, count = set(), 0
    for capability in ((7, 5), (8, 0), (8, 6), (9, 0)):
        archive = find_archive(capability)
        for entry in archive.entries.values():
            plain = archive.ptx(entry).replace(entry.entry.encode(), entry.kernel.encode())
            assert entry.entry == f"{entry.kernel}_{hashlib.sha256(plain).hexdigest()[:12]}"
            names.add(entry.entry)
            count += 1
    assert len(names) == count


@pytest.mark.parametrize("data", [b"", b"no zip", pack_fake_archive(SYMMETRIZE)[:-30]])
def test_a_damaged_archive(data):
    with pytest.raises(
        BackendError, match=r"is damaged .*; pip install --force-reinstall --no-deps mx-align"
    ):
        KernelArchive(data, "here")


def test_an_archive_of_another_form():
    with pytest.raises(BackendError, match="unknown argument"):
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
