"""Our use of TensorRT against NVIDIA's own Python bindings of it: every name we use exists."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from ....support.stub_libraries import compile_tensorrt_stub, missing_reason, run_python

WHY_NOT = missing_reason("tensorrt_bindings", "tensorrt-cu13-bindings")
pytestmark = [pytest.mark.trt, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

# What `tensorrt_api` takes from each class.
MEMBERS = {
    "Builder": ["create_network", "create_builder_config", "create_optimization_profile",
                "build_serialized_network"],
    "OnnxParser": ["parse", "get_error", "num_errors"],
    "IBuilderConfig": ["set_memory_pool_limit", "add_optimization_profile", "progress_monitor",
                       "create_timing_cache", "set_timing_cache"],
    "IOptimizationProfile": ["set_shape"],
    "ITimingCache": ["serialize"],
    "Runtime": ["deserialize_cuda_engine"],
    "ICudaEngine": ["create_execution_context", "get_device_memory_size_for_profile_v2",
                    "get_tensor_dtype", "get_tensor_name", "get_tensor_mode", "num_io_tensors"],
    "IExecutionContext": ["set_device_memory", "set_optimization_profile_async",
                          "set_input_shape", "set_tensor_address", "execute_async_v3"],
    "IProgressMonitor": ["phase_start", "step_complete", "phase_finish"],
    "ILogger": ["ERROR", "INTERNAL_ERROR", "log"],
    "NetworkDefinitionCreationFlag": ["STRONGLY_TYPED"],
    "MemoryPoolType": ["WORKSPACE", "TACTIC_DRAM"],
    "ExecutionContextAllocationStrategy": ["USER_MANAGED"],
    "TensorIOMode": ["OUTPUT"],
    "DataType": ["INT64"],
}  # fmt: skip


LIST_MISSING = """
import ctypes, json, sys
names, *files = sys.argv[1:]
for file in files:
    ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
import tensorrt_bindings as trt
members = json.loads(names)
print({n: [m for m in of if not hasattr(getattr(trt, n), m)] for n, of in members.items()})
"""


@pytest.mark.slow
def test_every_name_exists(tmp_path):
    names = ("tensorrt-cu13-bindings", "tensorrt-cu12-bindings")
    there = {
        found.metadata["Name"].replace("_", "-"): found.version
        for found in importlib.metadata.distributions()
    }
    version = next(there[name] for name in names if name in there)
    libraries = compile_tensorrt_stub(tmp_path, version.split(".")[0])
    missing = run_python(LIST_MISSING, json.dumps(MEMBERS), *libraries).strip()
    assert missing == str({name: [] for name in MEMBERS})


def test_the_list_of_names_is_whole():
    from .....engine.runtime.gpu import tensorrt_api

    _, _, source = Path(tensorrt_api.__file__).read_text("utf-8").partition("class TensorrtApi:")
    objects = "builder|config|context|_context|engine|_engine|parser|runtime|made|cache"
    used = set(re.findall(rf"\b(?:{objects})\.([a-z_0-9]+)", source))
    ours = {"num_compute_capabilities", "set_compute_capability", "items"}
    assert used - ours - {"context"} <= {name for names in MEMBERS.values() for name in names}
