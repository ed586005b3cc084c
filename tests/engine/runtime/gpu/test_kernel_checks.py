"""The doctor's kernel checks on a fake GPU find right and wrong kernels."""

from .....engine.runtime.gpu.devices import Device, view_host
from .....engine.runtime.gpu.kernel_checks import check_kernels
from .....engine.runtime.gpu.kernels.launch import KernelArchive
from ....support.fake_gpu import SYMMETRIZE, FakeDriver, pack_fake_archive


def test_a_right_and_a_wrong_kernel():
    class WrongThreshold(FakeDriver):
        def _run_symmetrize(self, grid, *values):
            super()._run_symmetrize(grid, *values[:13], values[13] * 2, *values[14:])

    for driver, good in ((FakeDriver(), True), (WrongThreshold(), False)):
        archive = KernelArchive(pack_fake_archive(SYMMETRIZE), "")
        device = Device(driver, 0)
        found = list(check_kernels(device, archive, ((3, 19), (2, 40)), repeats=1))
        assert [one.is_good for one in found] == [good] * 2
        device.close()
        assert not driver.list_leaks()


def test_sentence_scores_are_checked_too():
    class WrongSentence(FakeDriver):
        def _run_symmetrize(self, grid, *values):
            super()._run_symmetrize(grid, *values)
            view_host(values[-1], (grid[0],), "f4")[0] += 0.01

    archive = KernelArchive(pack_fake_archive(SYMMETRIZE), "")
    (found,) = check_kernels(Device(WrongSentence(), 0), archive, ((3, 19),), repeats=1)
    assert not found.is_good and found.difference > 0.009
