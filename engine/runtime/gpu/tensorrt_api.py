"""Call TensorRT: every use of it in the engine goes through `TensorrtApi`, `Plan`, `PlanContext`.

`tensorrt` (10.9 and later) and `tensorrt_rtx` have one interface. What NVIDIA calls an engine or a
plan, a graph compiled for one kind of GPU, is a plan here. Does not decide what is built or kept.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import BackendError
from ..backends import TENSORRT_TITLES, check_tensorrt
from .cuda_driver import OutOfMemory

Shape = tuple[int, ...]
ShapeProfile = Mapping[str, tuple[Shape, Shape, Shape]]  # of each input: smallest, usual, largest
BuildProgress = Callable[[str, int, int], None]  # phase, step, of how many


class TensorrtApi:
    """One of the two packages."""

    def __init__(self, package: str) -> None:
        check_tensorrt(package)
        self.package, self.title = package, TENSORRT_TITLES[package]
        try:
            self._trt: Any = importlib.import_module(package)
        except (ImportError, OSError, RuntimeError) as error:  # its libraries are not found
            line = str(error).split("\n")[0]
            raise BackendError(f"{self.title}: {package} does not load ({line})") from None
        self.version: str = self._trt.__version__
        self._errors: list[str] = []
        self._logger = self._new_logger()

    def _new_logger(self) -> Any:
        trt, errors = self._trt, self._errors

        class Logger(trt.ILogger):  # type: ignore[misc,name-defined]
            """Keeps errors: they are the reason when a call returns nothing."""

            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    errors.append(message.strip())

        return Logger()

    def explain_failure(self, what: str) -> BackendError:
        """Return an error with the reason that TensorRT logged for what it did not do."""
        text = " ".join(self._errors)
        reason = self._errors[0][:300] if self._errors else "no reason given"
        self._errors.clear()
        is_full = "out of memory" in text.lower() or "OutOfMemory" in text
        return (OutOfMemory if is_full else BackendError)(f"{self.title}: {what}: {reason}")

    def _start_part(self, kind: Any) -> Any:
        """Start a builder or a runtime; without a usable GPU there is none, and no error of its
        own."""
        try:
            return kind(self._logger)
        except (TypeError, RuntimeError):
            raise self.explain_failure("does not start") from None

    def can_build_for(self, capability: tuple[int, int]) -> bool:
        """Tell whether there are plans for GPUs of this compute capability, as far as it can be
        told without building one."""
        if self.package == "tensorrt":
            return True
        return hasattr(self._trt.ComputeCapability, "SM{}{}".format(*capability))

    # ---- building ----

    def build_plan(
        self,
        graph: bytes,
        profiles: Sequence[ShapeProfile],
        *,
        workspace: int | None = None,
        memory: int | None = None,
        capabilities: Sequence[str] = (),
        timings: bytes = b"",
        progress: BuildProgress | None = None,
    ) -> tuple[bytes, bytes]:
        """Return a plan, serialised, and what was learnt about speeds for the next build.

        `workspace` bounds what the plan may use beside its values, `memory` what trying out its
        kernels may. `capabilities`, like "SM86", are for TensorRT for RTX, which builds for GPUs
        that are not there. Types are those of the graph: a float16 graph gives a float16 plan.
        """
        trt = self._trt
        self._errors.clear()
        builder = self._start_part(trt.Builder)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, self._logger)  # owns weights: it must outlive the build
        if not parser.parse(graph):
            problems = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
            self._errors[:0] = problems
            raise self.explain_failure("cannot read the graph")
        config = builder.create_builder_config()
        pools = trt.MemoryPoolType
        if workspace is not None:
            config.set_memory_pool_limit(pools.WORKSPACE, workspace)
        if memory is not None and self.package == "tensorrt":  # the other one tries out nothing
            config.set_memory_pool_limit(pools.TACTIC_DRAM, memory)
        if capabilities:
            config.num_compute_capabilities = len(capabilities)
        for place, name in enumerate(capabilities):
            known = getattr(trt.ComputeCapability, name, None)
            if known is None:
                raise BackendError(f"{self.title}: it has no engines for {name}")
            config.set_compute_capability(known, place)
        for profile in profiles:
            made = builder.create_optimization_profile()
            for name, shapes in profile.items():
                made.set_shape(name, *shapes)
            if config.add_optimization_profile(made) < 0:
                raise self.explain_failure("refused a profile")
        cache = self._set_timing_cache(config, timings)
        if progress is not None:
            monitor = self._new_monitor(progress)
            config.progress_monitor = monitor
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise self.explain_failure("cannot build the engine")
        kept = bytes(memoryview(cache.serialize())) if cache is not None else b""
        return bytes(memoryview(plan)), kept

    def _set_timing_cache(self, config: Any, timings: bytes) -> Any:
        """Give the build what earlier ones learnt about speeds.

        TensorRT for RTX measures nothing when it builds, so it has no such cache: None.
        """
        if self.package != "tensorrt":
            return None
        cache = config.create_timing_cache(timings)
        if not config.set_timing_cache(cache, False) and timings:  # of another GPU or version
            cache = config.create_timing_cache(b"")
            config.set_timing_cache(cache, False)
        return cache

    def _new_monitor(self, progress: BuildProgress) -> Any:
        trt = self._trt

        class BuildMonitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                trt.IProgressMonitor.__init__(self)
                self.sizes: dict[str, int] = {}

            def phase_start(self, name: str, parent: str | None, steps: int) -> None:
                self.sizes[name] = steps

            def step_complete(self, name: str, step: int) -> bool:
                progress(name, step + 1, self.sizes.get(name, 0))
                return True

            def phase_finish(self, name: str) -> None:
                self.sizes.pop(name, None)

        return BuildMonitor()

    # ---- running ----

    def load_plan(self, data: bytes) -> "Plan":
        """Load a plan for the current device; an error if it was made elsewhere or is damaged."""
        self._errors.clear()
        runtime = self._start_part(self._trt.Runtime)
        loaded = runtime.deserialize_cuda_engine(data)
        if loaded is None:
            raise self.explain_failure("cannot load the engine")
        return Plan(self, self._trt, runtime, loaded)


# ---- running ----


class Plan:
    """A graph compiled for a GPU, loaded."""

    def __init__(self, api: TensorrtApi, trt: Any, runtime: Any, engine: Any) -> None:
        self._api, self._trt, self._runtime, self._engine = api, trt, runtime, engine

    def memory_size(self, profile: int) -> int:
        """Return the bytes of device memory that a context needs while it runs with a profile."""
        return int(self._engine.get_device_memory_size_for_profile_v2(profile))

    def takes_int64(self, name: str) -> bool:
        """Tell whether an input has 64-bit integers."""
        return bool(self._engine.get_tensor_dtype(name) == self._trt.int64)

    def output_names(self) -> list[str]:
        """Name all outputs; each needs an address in every run."""
        engine, mode = self._engine, self._trt.TensorIOMode.OUTPUT
        names = [str(engine.get_tensor_name(i)) for i in range(engine.num_io_tensors)]
        return [name for name in names if engine.get_tensor_mode(name) == mode]

    def new_context(self) -> "PlanContext":
        """Make something to run with, whose memory is given for each run."""
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(strategy)
        if context is None:
            raise self._api.explain_failure("cannot make an execution context")
        return PlanContext(self._api, context)


class PlanContext:
    """State of one run at a time."""

    def __init__(self, api: TensorrtApi, context: Any) -> None:
        self._api, self._context = api, context
        self._profile = -1

    def run(
        self,
        profile: int,
        shapes: Mapping[str, Shape],
        addresses: Mapping[str, int],
        memory: tuple[int, int],
        stream: int,
    ) -> None:
        """Start on the stream; `memory` is where and how much it may use meanwhile."""
        context = self._context
        context.set_device_memory(*memory)
        if profile != self._profile:
            self._check_done(context.set_optimization_profile_async(profile, stream), "its profile")
            self._profile = profile
        for name, shape in shapes.items():
            self._check_done(context.set_input_shape(name, shape), f"the shape of {name}")
        for name, address in addresses.items():
            self._check_done(context.set_tensor_address(name, address), f"the address of {name}")
        self._check_done(context.execute_async_v3(stream), "the run")

    def _check_done(self, done: bool, what: str) -> None:
        if not done:
            raise self._api.explain_failure(f"refused {what}")
