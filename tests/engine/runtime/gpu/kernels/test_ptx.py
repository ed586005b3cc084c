"""The PTX that ships, executed through the real launch code; and that what is wrong is noticed."""

import re
from contextlib import closing

import pytest

from ......engine.runtime.gpu.devices import Device
from ......engine.runtime.gpu.kernel_checks import check_kernels
from ......engine.runtime.gpu.kernels.launch import find_archive
from .....support.ptx.driver import PtxDriver

CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
SHAPES = ((1, 1), (3, 19), (2, 40))


def run_checks(capability, shapes=SHAPES, change=str):
    driver = PtxDriver(capability)
    driver.change = change
    with closing(Device(driver, 0)) as device:
        archive = find_archive(capability)
        found = list(check_kernels(device, archive, shapes, repeats=1, rounds=1))
    assert not driver.list_leaks()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_architecture(capability):
    found = run_checks(capability)
    assert found and all(one.is_good for one in found), list(map(str, found))


def swap_parameters(first: int, second: int):
    """Let the kernel take one argument for another."""

    def change(ptx):
        names = {f"_param_{first}]": f"_param_{second}]", f"_param_{second}]": f"_param_{first}]"}
        return re.sub(rf"_param_(?:{first}|{second})\]", lambda m: names[m[0]], ptx)

    return change


def remove_barrier(number: int):
    def change(ptx):
        places = [m.start() for m in re.finditer(r"bar\.sync", ptx)]
        place = places[number]
        return f"{ptx[:place]}mov.u32 %r1, %r1; //{ptx[place:]}"

    return change


def change_once(old: str, new: str):
    return lambda ptx: re.sub(old, new, ptx, count=1)


MUTATIONS = {
    "a barrier less": remove_barrier(0),
    "one stride for another": swap_parameters(7, 9),
    "source words for target words": swap_parameters(2, 3),
    "counts for starts": swap_parameters(15, 16),
    "links for scores": swap_parameters(17, 18),
    "another comparison": change_once(r"setp\.ge\.f32", "setp.lt.f32"),
    "a link that is packed otherwise": change_once(r"(shl\.b32\s+%r\d+, %r\d+), 16;", r"\1, 15;"),
    "a shuffle that reaches too far": change_once(r"(shfl\.sync\.up\.b32[^;]*), 1, 0", r"\1, 3, 0"),
    "cells of 8 bytes": change_once(r"(mad\.wide\.s32\s+%rd\d+, %r\d+), 4,", r"\1, 8,"),
    "an address that is not aligned": change_once(r"(st\.global\.b32 \[ %rd\d+ \+) 0", r"\1 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_wrong_is_noticed(name):
    seen = []

    def change(ptx):
        seen.append(MUTATIONS[name](ptx) != ptx)
        return MUTATIONS[name](ptx)

    found = run_checks((8, 0), ((3, 19),), change)
    assert all(seen) and seen, "nothing was changed"
    assert not all(one.is_good for one in found)


def test_too_little_shared_memory_is_noticed(monkeypatch):
    launch = PtxDriver.launch

    def launch_small(self, function, grid, threads, shared, *rest):
        launch(self, (function[0], 4), grid, threads, 4, *rest)

    monkeypatch.setattr(PtxDriver, "launch", launch_small)
    (found,) = run_checks((8, 0), ((3, 19),))
    assert "shared ones" in found.error
