"""TensorRT, call by call: every use of it in the engine goes through `Api`, `Engine`, `Context`.
Knows `tensorrt` (10.7 and later) and `tensorrt_rtx`, which have one interface; what is built, kept
and run is the matter of `trt` and `trt_rtx`."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mx.engine.backends.cuda_driver import OutOfMemory
from mx.engine.backends.plugins import NAMESPACE
from mx.engine.errors import BackendError
from mx.engine.kernels.launch import Archive, Entry

INSTALL = {
    "tensorrt": 'pip install "mx-align[trt]"',
    "tensorrt_rtx": 'pip install "mx-align[trt-rtx]"',
}
TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}

Shape = tuple[int, ...]
Progress = Callable[[str, int, int], None]  # phase, step, of how many


@dataclass(frozen=True)
class Profile:
    """The smallest, the usual and the largest shape of each input."""

    shapes: Mapping[str, tuple[Shape, Shape, Shape]]


def check_installed(package: str) -> None:
    """An error if a package is not there; without loading it, which takes seconds."""
    if importlib.util.find_spec(package) is None:
        raise BackendError(f"{TITLES[package]}: {package} is not installed; {INSTALL[package]}")


class Api:
    """One of the two packages."""

    def __init__(self, package: str) -> None:
        check_installed(package)
        try:
            self._trt: Any = importlib.import_module(package)
        except (ImportError, OSError, RuntimeError) as error:  # its libraries are not found
            line = str(error).split("\n")[0]
            raise BackendError(f"{TITLES[package]}: {package} does not load ({line})") from None
        self.package = package
        self.version: str = self._trt.__version__
        self._errors: list[str] = []
        self._logger = self._new_logger()
        self._registered: set[str] = set()

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

    def _failed(self, what: str) -> BackendError:
        text = " ".join(self._errors)
        reason = self._errors[0][:300] if self._errors else "no reason given"
        self._errors.clear()
        if "out of memory" in text.lower() or "OutOfMemory" in text:
            return OutOfMemory(f"{TITLES[self.package]}: {what}: {reason}")
        return BackendError(f"{TITLES[self.package]}: {what}: {reason}")

    def _made(self, kind: Any) -> Any:
        """A builder or a runtime; without a usable GPU there is none, and no error of its own."""
        try:
            return kind(self._logger)
        except (TypeError, RuntimeError):
            raise self._failed("does not start") from None

    # ---- building ----

    def build(
        self,
        graph: bytes,
        profiles: Sequence[Profile],
        *,
        workspace: int | None = None,
        capabilities: Sequence[str] = (),
        timings: bytes = b"",
        progress: Progress | None = None,
    ) -> tuple[bytes, bytes]:
        """An engine, serialised, and what was learnt about speeds for the next build.

        `capabilities`, like "SM86", are for TensorRT for RTX, which builds for GPUs that are not
        there. Types are those of the graph: a float16 graph gives a float16 engine.
        """
        trt = self._trt
        self._errors.clear()
        builder = self._made(trt.Builder)
        network = builder.create_network(self._network_flags())
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse(graph):
            problems = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
            self._errors[:0] = problems
            raise self._failed("cannot read the graph")
        config = builder.create_builder_config()
        if workspace is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
        if capabilities:
            config.num_compute_capabilities = len(capabilities)
            for place, name in enumerate(capabilities):
                config.set_compute_capability(getattr(trt.ComputeCapability, name), place)
        for profile in profiles:
            made = builder.create_optimization_profile()
            for name, shapes in profile.shapes.items():
                made.set_shape(name, *shapes)
            config.add_optimization_profile(made)
        cache = self._timing_cache(config, timings)
        if progress is not None:
            monitor = self._monitor(progress)
            config.progress_monitor = monitor
        engine = builder.build_serialized_network(network, config)
        if engine is None:
            raise self._failed("cannot build the engine")
        kept = bytes(memoryview(cache.serialize())) if cache is not None else b""
        return bytes(memoryview(engine)), kept

    def _network_flags(self) -> int:
        flags = self._trt.NetworkDefinitionCreationFlag
        value = 1 << int(flags.STRONGLY_TYPED)
        if self._registered:
            value |= 1 << int(flags.PREFER_AOT_PYTHON_PLUGINS)
        return value

    def _timing_cache(self, config: Any, timings: bytes) -> Any:
        """TensorRT for RTX measures nothing when it builds, so it has none."""
        if self.package != "tensorrt":
            return None
        cache = config.create_timing_cache(timings)
        if not config.set_timing_cache(cache, False) and timings:  # of another GPU or version
            cache = config.create_timing_cache(b"")
            config.set_timing_cache(cache, False)
        return cache

    def _monitor(self, progress: Progress) -> Any:
        trt = self._trt

        class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined]
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

        return Monitor()

    # ---- our kernels as plugins ----

    def register(self, archive: Archive, dtype: str) -> set[str]:
        """Register plugins for the ops that the archive has kernels for; the names of the ops.

        The kernels' PTX becomes a part of the engine: nothing of Python runs with it.
        """
        try:
            plugin: Any = importlib.import_module(f"{self.package}.plugin")
            makers = {"static_attention": _static_plugin, "leaky_attention": _leaky_plugin}
            names = {"static_attention": "StaticAttention", "leaky_attention": "LeakyAttention"}
            for kernel, name in names.items():
                entry = archive.entries.get((kernel, dtype))
                if entry is not None and name not in self._registered:
                    makers[kernel](self._trt, plugin, entry, archive.ptx(entry))
                    self._registered.add(name)
        except (ImportError, AttributeError) as error:  # before 10.9
            raise BackendError(f"{TITLES[self.package]} {self.version}: {error}") from None
        return set(self._registered)

    def forget_plugins(self) -> None:
        """Build the next network without them."""
        self._registered.clear()

    # ---- running ----

    def load(self, engine: bytes) -> "Engine":
        """An engine on the current device; an error if it was made elsewhere or is damaged."""
        self._errors.clear()
        runtime = self._made(self._trt.Runtime)
        loaded = runtime.deserialize_cuda_engine(engine)
        if loaded is None:
            raise self._failed("cannot load the engine")
        return Engine(self, self._trt, runtime, loaded)


def _annotated(function: Any, types: Mapping[str, Any]) -> Any:
    # TensorRT reads the signature; the types exist only where it is installed.
    function.__annotations__ = dict(types)
    return function


def _static_plugin(trt: Any, plugin: Any, entry: Entry, ptx: bytes) -> None:
    name = f"{NAMESPACE}::StaticAttention"
    tensor = plugin.TensorDesc
    inputs = dict.fromkeys(("q", "k", "v", "lengths", "mask"), tensor)

    def describe(q, k, v, lengths, mask, heads):  # type: ignore[no-untyped-def]
        return k.like()

    def implement(q, k, v, lengths, mask, heads, outputs, tactic):  # type: ignore[no-untyped-def]
        head = entry.constants["HEAD"]
        length, width = k.shape_expr[1], heads * head
        strides = [length * width, width, head]
        numbers = [q.shape_expr[0], length, heads, *(4 * strides)]
        grid = k.shape_expr[0] * heads, plugin.cdiv(length, entry.constants["ROWS"])
        return _launch(plugin, entry, ptx, grid, numbers)

    plugin.register(name)(_annotated(describe, {**inputs, "heads": int, "return": tensor}))
    plugin.aot_impl(name)(_annotated(implement, {}))


def _leaky_plugin(trt: Any, plugin: Any, entry: Entry, ptx: bytes) -> None:
    name = f"{NAMESPACE}::LeakyAttention"
    tensor = plugin.TensorDesc
    inputs = dict.fromkeys(("q", "k", "null_key", "mask"), tensor)

    def describe(q, k, null_key, mask, heads):  # type: ignore[no-untyped-def]
        batch, n_tgt, n_src = q.shape_expr[0], q.shape_expr[1], k.shape_expr[1]
        return (
            plugin.from_shape_expr((batch, n_tgt, n_src), dtype=trt.float32),
            plugin.from_shape_expr((batch, n_tgt), dtype=trt.float32),
        )

    def implement(q, k, null_key, mask, heads, outputs, tactic):  # type: ignore[no-untyped-def]
        head = entry.constants["HEAD"]
        n_tgt, n_src, width = q.shape_expr[1], k.shape_expr[1], heads * head
        numbers = [n_tgt, n_src, n_tgt * width, width, head, n_src * width, width, head]
        grid = q.shape_expr[0], plugin.cdiv(n_tgt, entry.constants["ROWS"])
        return _launch(plugin, entry, ptx, grid, numbers)

    two = tuple.__class_getitem__((tensor, tensor))
    plugin.register(name)(_annotated(describe, {**inputs, "heads": int, "return": two}))
    plugin.aot_impl(name)(_annotated(implement, {}))


def _launch(plugin: Any, entry: Entry, ptx: bytes, grid: Any, numbers: Sequence[Any]) -> Any:
    """What an ahead-of-time implementation returns. The kernel gets the inputs' pointers, these
    numbers, the outputs' pointers: that is the order of our kernels' arguments."""
    parameters = plugin.KernelLaunchParams()
    parameters.grid_x, parameters.grid_y = grid
    parameters.block_x = entry.threads
    parameters.shared_mem = entry.shared
    extra = plugin.SymIntExprs.from_tuple([plugin.SymInt32(number) for number in numbers])
    return entry.entry.encode(), ptx, parameters, extra


class Engine:
    """A loaded engine."""

    def __init__(self, api: Api, trt: Any, runtime: Any, engine: Any) -> None:
        self._api, self._trt, self._runtime, self._engine = api, trt, runtime, engine

    def memory(self, profile: int) -> int:
        """Bytes of device memory that a context needs while it runs with a profile."""
        return int(self._engine.get_device_memory_size_for_profile_v2(profile))

    def wide(self, name: str) -> bool:
        """Whether an input has 64-bit integers."""
        return bool(self._engine.get_tensor_dtype(name) == self._trt.int64)

    def context(self) -> "Context":
        """Something to run with, whose memory is given for each run."""
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(strategy)
        if context is None:
            raise self._api._failed("cannot make an execution context")
        return Context(self._api, context)


class Context:
    """State of one run at a time."""

    def __init__(self, api: Api, context: Any) -> None:
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
            self._check(context.set_optimization_profile_async(profile, stream), "its profile")
            self._profile = profile
        for name, shape in shapes.items():
            self._check(context.set_input_shape(name, shape), f"the shape of {name}")
        for name, address in addresses.items():
            self._check(context.set_tensor_address(name, address), f"the address of {name}")
        self._check(context.execute_async_v3(stream), "the run")

    def _check(self, done: bool, what: str) -> None:
        if not done:
            raise self._api._failed(f"refused {what}")
