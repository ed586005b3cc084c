"""Our use of TensorRT against NVIDIA's own Python bindings of it: that our plugins pass its checks
and tell it the right launch, and that every name we use exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ....support.stub_libraries import compile_tensorrt_stub, missing_reason

WHY_NOT = missing_reason("tensorrt_bindings", "tensorrt-cu13-bindings")
pytestmark = [pytest.mark.trt, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
pytest.importorskip("triton", reason="triton is not installed")

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
    "NetworkDefinitionCreationFlag": ["STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS"],
    "MemoryPoolType": ["WORKSPACE", "TACTIC_DRAM"],
    "ExecutionContextAllocationStrategy": ["USER_MANAGED"],
    "TensorIOMode": ["OUTPUT"],
    "DataType": ["INT64"],
}  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    import importlib.metadata

    names = ("tensorrt-cu13-bindings", "tensorrt-cu12-bindings")
    there = {d.metadata["Name"].replace("_", "-"): d.version
             for d in importlib.metadata.distributions()}  # fmt: skip
    version = next(there[name] for name in names if name in there)
    libraries = compile_tensorrt_stub(tmp_path_factory.mktemp("trt"), version.split(".")[0])
    command = [
        sys.executable,
        "-m",
        "mx_align.tests.support.tensorrt_answers",
        *map(str, libraries),
    ]
    done = subprocess.run(
        command, input=json.dumps(MEMBERS), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


@pytest.mark.slow
def test_every_name_exists(said):
    assert {name: missing for name, missing in said["members"].items() if missing} == {}


def test_the_list_of_names_is_whole():
    from .....engine.runtime.gpu import tensorrt_api

    _, _, source = Path(tensorrt_api.__file__).read_text("utf-8").partition("class TensorrtApi:")
    objects = "builder|config|context|_context|engine|_engine|parser|runtime|made|cache"
    used = set(re.findall(rf"\b(?:{objects})\.([a-z_0-9]+)", source))
    ours = {"num_compute_capabilities", "set_compute_capability", "items", "digest"}
    assert used - ours - {"context"} <= {name for names in MEMBERS.values() for name in names}


@pytest.mark.slow
def test_plugins_are_registered_once_and_for_each_model(said):
    assert said["ops"] == ["LeakyAttention", "StaticAttention"]
    assert said["again"] and said["other"]


def test_static_attention_is_launched_as_its_kernel_demands(said):
    from ....support.kernel_cases import number_names

    found = said["static"]
    assert found["types"] == ["HALF"] and found["shapes"] == [[3, 19, 256]]
    assert found["launch"] == {"grid_x": 3 * 4, "grid_y": 1, "grid_z": 1, "block_x": 128,
                               "block_y": 1, "block_z": 1, "shared_mem": 9216}  # fmt: skip
    strides = {"b": 19 * 256, "row": 256, "head": 64}
    wanted = {
        f"stride_{x}_{axis}": n for x in ("q", "k", "v", "out") for axis, n in strides.items()
    }
    wanted |= {"n_q": 1, "n_rows": 19, "heads": 4}
    names = number_names(64, "static_attention")
    assert dict(zip(names, found["numbers"], strict=True)) == wanted
    assert found["bits"] == ["PluginArgDataType.INT32"]
    assert found["kernel"] == ["static_attention", ".version 8.0 static_attention"]


def test_leaky_attention_is_launched_as_its_kernel_demands(said):
    from ....support.kernel_cases import number_names

    found = said["leaky"]
    assert found["types"] == ["FLOAT", "FLOAT"] and found["shapes"] == [[3, 19, 40], [3, 19]]
    assert found["launch"]["grid_x"] == 3 and found["launch"]["grid_y"] == 2  # tiles of 16 rows
    wanted = {"n_tgt": 19, "n_src": 40, "stride_q_b": 19 * 256, "stride_q_row": 256,
              "stride_q_head": 64, "stride_k_b": 40 * 256, "stride_k_row": 256,
              "stride_k_head": 64}  # fmt: skip
    names = number_names(64, "leaky_attention")
    assert dict(zip(names, found["numbers"], strict=True)) == wanted
    assert found["kernel"][0] == "leaky_attention"
