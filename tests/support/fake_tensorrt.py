"""A fake of TensorRT at the level of `tensorrt_api`: plans are graphs that ONNX Runtime runs.

Memory is that of the fake driver, and what a run may touch there is checked.
"""

import hashlib

import numpy as np
import onnxruntime

from ...engine.errors import BackendError
from ...engine.runtime.gpu.devices import view_host
from .fake_gpu import FakeDriver

# What the real TensorRT for RTX builds for: it has no plans for data-centre GPUs (9.0, 10.0), and
# no fp32 matrix products for 7.5.
RTX_CAPABILITIES = {
    "fp32": ("SM80", "SM86", "SM89", "SM120"),
    "fp16": ("SM75", "SM80", "SM86", "SM89", "SM120"),
}


class FakeTensorrt:
    """TensorRT whose plan is the graph itself."""

    package = "tensorrt"

    def __init__(self, driver: FakeDriver, version: str = "10.9", memory: int = 1 << 20) -> None:
        self.driver, self.version, self.memory = driver, version, memory
        self.per_row = 0  # bytes more for each row of a profile
        self.log: list[tuple] = []
        self.fail_build: Exception | None = None
        self.fail_run = False
        self.contexts = 0  # how many can still be made; 0: any number

    def can_build_for(self, capability):
        return True

    def build_plan(self, graph, profiles, *, workspace, memory, capabilities, timings, progress):
        assert workspace <= memory
        self.log.append(("build", profiles, workspace, tuple(capabilities), timings))
        if self.fail_build:
            raise self.fail_build
        progress("building", 1, 2)
        return b"ENGINE" + hashlib.sha256(graph).digest() + graph, b"timings"

    def load_plan(self, plan):
        self.log.append(("load",))
        if hashlib.sha256(plan[38:]).digest() != plan[6:38]:
            raise BackendError("TensorRT: cannot load the engine: magic tag does not match")
        profiles = [call for call in self.log if call[0] == "build"]
        return FakePlan(self, plan[38:], profiles[-1][1] if profiles else None)


class FakePlan:
    def __init__(self, api: FakeTensorrt, graph: bytes, profiles) -> None:
        self.api, self.profiles = api, profiles
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(graph, options, ["CPUExecutionProvider"])

    def memory_size(self, profile):
        high = self.profiles[profile]["src"][2] if self.profiles else (0,)
        return self.api.memory + self.api.per_row * high[0]

    def takes_int64(self, name):
        return self.session.get_inputs()[0].type == "tensor(int64)"

    def output_names(self):
        return [node.name for node in self.session.get_outputs()]

    def new_context(self):
        if self.api.contexts == 1:
            raise BackendError("TensorRT: cannot make an execution context: broken")
        self.api.contexts -= self.api.contexts > 0
        return FakePlanContext(self)


class FakePlanContext:
    def __init__(self, plan: FakePlan) -> None:
        self.plan = plan

    def run(self, profile, shapes, addresses, memory, stream):
        api, driver = self.plan.api, self.plan.api.driver
        if api.fail_run:
            raise BackendError("TensorRT: refused the run: broken")
        driver.check_inside(memory[0], memory[1])
        assert memory[1] >= api.memory and memory[0] % 256 == 0
        if self.plan.profiles:
            allowed = self.plan.profiles[profile]
            for name, shape in shapes.items():
                low, _, high = allowed[name]
                assert all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)), shape
        kind = np.int64 if self.plan.takes_int64("src") else np.int32
        feeds = {}
        for name, shape in shapes.items():
            driver.check_inside(addresses[name], int(np.prod(shape)) * np.dtype(kind).itemsize)
            feeds[name] = view_host(addresses[name], shape, kind)
        # With a twin, as the CPU's own backend computes a lone pair.
        rows = len(feeds["src"])
        if rows == 1:
            feeds = {name: np.repeat(array, 2, axis=0) for name, array in feeds.items()}
        names = self.plan.output_names()
        assert set(addresses) == {*shapes, *names}
        for name, array in zip(names, self.plan.session.run(names, feeds), strict=True):
            array = array[:rows]
            assert array.dtype == np.float32
            driver.check_inside(addresses[name], array.nbytes)
            view_host(addresses[name], array.shape, np.float32)[...] = array
        driver.note("execute", profile, stream)
