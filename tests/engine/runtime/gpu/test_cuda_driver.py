"""Our calls of the CUDA driver through the real cuda-bindings, down to a library that is a fake:
what arrives there, call by call and byte by byte."""

import json
import struct

import pytest

from ....support.stub_libraries import compile_cuda_stub, missing_reason, run_python

WHY_NOT = missing_reason("cuda.bindings", "cuda-bindings")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

PROGRAM = """
import ctypes, json, sys

library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
from mx_align.engine.runtime.gpu.cuda_driver import Driver, OutOfMemory
from mx_align.engine.errors import BackendError

said = {}
driver = Driver()
said["version"] = driver.cuda_version()
said["names"] = [driver.device_name(i) for i in range(driver.count_devices())]
said["capability"] = driver.capability(0)
driver.set_context(driver.retain_context(1))
said["memory"] = [driver.memory_sizes()]
pointer = driver.allocate(1000)
said["memory"].append(driver.memory_sizes())
try:
    driver.allocate(1 << 21)
except OutOfMemory as error:
    said["full"] = str(error)
stream = driver.new_stream()
host = driver.allocate_host(16)
ctypes.memset(host, 7, 16)
driver.copy_in(pointer, host, 16, stream)
driver.fill_zeros(pointer, 4, stream)
ctypes.memset(host, 9, 16)
driver.copy_out(host, pointer, 8, stream)
driver.wait_stream(stream)
said["copied"] = list(ctypes.string_at(host, 16))
try:
    driver.wait_stream(stream + 1)
except BackendError as error:
    said["wrong"] = str(error)
module = driver.load_module(b"\\x7fELFabcdefgh")
image = ctypes.addressof(ctypes.c_char.in_dll(library, "fake_image"))
said["image"] = ctypes.string_at(image, 8).hex()
small = driver.get_function(module, "small", 48 << 10)
said["small"] = list((ctypes.c_int * 2).in_dll(library, "fake_attribute"))
function = driver.get_function(module, "kernel", 60000)
said["attribute"] = list((ctypes.c_int * 2).in_dll(library, "fake_attribute"))
name = ctypes.addressof(ctypes.c_char.in_dll(library, "fake_name"))
said["name"] = ctypes.string_at(name).decode()

kinds = ("*fp32", "i32", "fp32", "*i32", "i32", "*fp16")
values = (pointer, -5, 0.25, pointer + 16, 7, pointer + 32)
(ctypes.c_int * 64).in_dll(library, "fake_sizes")[:6] = [8, 4, 4, 8, 4, 8]
ctypes.c_int.in_dll(library, "fake_count").value = 6
driver.launch(function, (3, 2, 1), 128, 60000, stream, kinds, values)
said["launch"] = list((ctypes.c_ulonglong * 8).in_dll(library, "fake_launch"))
said["arguments"] = bytes((ctypes.c_ubyte * 48).in_dll(library, "fake_arguments")).hex()
said["pointer"], said["stream"] = pointer, stream
driver.unload_module(module)
driver.free(pointer)
driver.free_host(host)
driver.free_stream(stream)
driver.release_context(1)
said["memory"].append(driver.memory_sizes())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    library = compile_cuda_stub(tmp_path_factory.mktemp("cuda"))
    return json.loads(run_python(PROGRAM, library))


def test_devices(said):
    assert said["version"] == [13, 0]
    assert said["names"] == ["First", "Second"]
    assert said["capability"] == [8, 6]


def test_memory_is_taken_copied_and_given_back(said):
    assert said["memory"] == [[1 << 20, 1 << 20], [(1 << 20) - 1000, 1 << 20], [1 << 20, 1 << 20]]
    assert said["copied"] == [0] * 4 + [7] * 4 + [9] * 8
    assert said["full"] == "the GPU is out of memory"
    assert said["pointer"] % 256 == 0


def test_an_error_names_the_call_and_the_reason(said):
    assert said["wrong"] == "CUDA: cuStreamSynchronize failed with CUDA_ERROR_INVALID_HANDLE"


def test_kernels_are_loaded_and_may_use_their_shared_memory(said):
    assert bytes.fromhex(said["image"]) == b"\x7fELFabcd"
    assert said["name"] == "kernel"
    assert said["small"] == [0, 0]  # needs no leave
    assert said["attribute"] == [8, 60000]  # MAX_DYNAMIC_SHARED_SIZE_BYTES


def test_a_launch_packs_its_arguments(said):
    assert said["launch"] == [3, 2, 1, 128, 1, 1, 60000, said["stream"]]
    found = struct.unpack("<Qi4xf4xQi4xQ", bytes.fromhex(said["arguments"]))
    at = said["pointer"]
    assert found == (at, -5, 0.25, at + 16, 7, at + 32)
