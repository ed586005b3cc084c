"""TensorRT, call by call: every use of it in the engine goes through `Api`, `Engine`, `Context`.
Knows `tensorrt` (10.9 and later) and `tensorrt_rtx`, which have one interface; what is built, kept
and run is the matter of `trt` and `trt_rtx`."""

import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BackendError
from .cuda_driver import OutOfMemory
from .kernel_ops import KERNEL_OF
from .kernels.launch import Archive, Entry

INSTALL = {
    "tensorrt": 'pip install "mx-align[trt]"',
    "tensorrt_rtx": 'pip install "mx-align[trt-rtx]"',
}
TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}

# TensorRT keeps one list of plugins for the whole process, which nothing can be taken from: what
# was registered once stays so for every `Api`. (package, namespace) -> ops.
_REGISTERED: dict[tuple[str, str], frozenset[str]] = {}
_REGISTERING = threading.Lock()

Shape = tuple[int, ...]
Progress = Callable[[str, int, int], None]  # phase, step, of how many


@dataclass(frozen=True)
class Plugins:
    """Ops that TensorRT knows as plugins of a namespace."""

    namespace: str
    ops: frozenset[str]


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

    def builds_for(self, capability: tuple[int, int]) -> bool:
        """Whether there are engines for GPUs of this compute capability, as far as it can be told
        without building one."""
        if self.package == "tensorrt":
            return True
        return hasattr(self._trt.ComputeCapability, "SM{}{}".format(*capability))

    # ---- building ----

    def build(
        self,
        graph: bytes,
        profiles: Sequence[Profile],
        *,
        workspace: int | None = None,
        memory: int | None = None,
        capabilities: Sequence[str] = (),
        timings: bytes = b"",
        plugins: bool = False,
        progress: Progress | None = None,
    ) -> tuple[bytes, bytes]:
        """An engine, serialised, and what was learnt about speeds for the next build.

        `workspace` bounds what the engine may use beside its values, `memory` what trying out its
        kernels may. `capabilities`, like "SM86", are for TensorRT for RTX, which builds for GPUs
        that are not there. `plugins` says that nodes are marked as such. Types are those of the
        graph: a float16 graph gives a float16 engine.
        """
        trt = self._trt
        self._errors.clear()
        builder = self._made(trt.Builder)
        network = builder.create_network(self._network_flags(plugins))
        parser = trt.OnnxParser(network, self._logger)  # owns weights: it must outlive the build
        if not self._tried(parser.parse, graph):
            problems = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
            self._errors[:0] = problems
            raise self._failed("cannot read the graph")
        config = builder.create_builder_config()
        self._bound(config, workspace, memory)
        self._aim(config, capabilities)
        for profile in profiles:
            made = builder.create_optimization_profile()
            for name, shapes in profile.shapes.items():
                made.set_shape(name, *shapes)
            if config.add_optimization_profile(made) < 0:
                raise self._failed("refused a profile")
        cache = self._timing_cache(config, timings)
        if progress is not None:
            monitor = self._monitor(progress)
            config.progress_monitor = monitor
        engine = self._tried(builder.build_serialized_network, network, config)
        if engine is None:
            raise self._failed("cannot build the engine")
        kept = bytes(memoryview(cache.serialize())) if cache is not None else b""
        return bytes(memoryview(engine)), kept

    def _tried(self, call: Any, *arguments: Any) -> Any:
        """What a call gives that runs Python of plugins; None, and the reason kept, if that
        fails."""
        try:
            return call(*arguments)
        except Exception as error:
            self._errors.append(f"{type(error).__name__}: {error}")
            return None

    def _bound(self, config: Any, workspace: int | None, memory: int | None) -> None:
        pools = self._trt.MemoryPoolType
        if workspace is not None:
            config.set_memory_pool_limit(pools.WORKSPACE, workspace)
        if memory is not None and self.package == "tensorrt":  # the other one tries out nothing
            config.set_memory_pool_limit(pools.TACTIC_DRAM, memory)

    def _aim(self, config: Any, capabilities: Sequence[str]) -> None:
        if not capabilities:
            return
        known = self._trt.ComputeCapability
        config.num_compute_capabilities = len(capabilities)
        for place, name in enumerate(capabilities):
            if not hasattr(known, name):
                raise BackendError(f"{TITLES[self.package]}: it has no engines for {name}")
            config.set_compute_capability(getattr(known, name), place)

    def _network_flags(self, plugins: bool) -> int:
        flags = self._trt.NetworkDefinitionCreationFlag
        value = 1 << int(flags.STRONGLY_TYPED)
        if plugins:
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

    def register(self, archive: Archive, dtype: str) -> Plugins:
        """Register plugins for the ops that the archive has kernels for.

        The kernels' PTX becomes a part of the engine: nothing of Python runs with it. Each archive
        has a namespace of its own, as another model or GPU needs other kernels of the same name.
        """
        namespace = f"mx_{archive.digest[:16]}_{dtype}"
        with _REGISTERING:
            if (self.package, namespace) not in _REGISTERED:
                ops = self._register(archive, dtype, namespace)
                _REGISTERED[self.package, namespace] = ops
            return Plugins(namespace, _REGISTERED[self.package, namespace])

    def _register(self, archive: Archive, dtype: str, namespace: str) -> frozenset[str]:
        makers = {"StaticAttention": _static_plugin, "LeakyAttention": _leaky_plugin}
        found = set()
        try:
            plugin: Any = importlib.import_module(f"{self.package}.plugin")
            for op, make in makers.items():
                entry = archive.entries.get((KERNEL_OF[op], dtype))
                if entry is not None:
                    make(self._trt, plugin, f"{namespace}::{op}", entry, archive.ptx(entry))
                    found.add(op)
        except Exception as error:  # too old, or not the interface that we know
            line = f"{type(error).__name__}: {error}".split("\n")[0]
            raise BackendError(f"{TITLES[self.package]} {self.version}: {line}") from error
        return frozenset(found)

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


def _add(plugin: Any, name: str, describe: Any, inputs: Sequence[str], outputs: int,
         implement: Any) -> None:  # fmt: skip
    """Register an op with tensors, `heads` and so many outputs, and its kernel."""
    tensor = plugin.TensorDesc
    given = tensor if outputs == 1 else tuple.__class_getitem__((tensor,) * outputs)
    types = {**dict.fromkeys(inputs, tensor), "heads": int, "return": given}
    plugin.register(name)(_annotated(describe, types))
    launch = (str, bytes, plugin.KernelLaunchParams, plugin.SymIntExprs)
    returned = tuple.__class_getitem__(launch)
    plugin.aot_impl(name)(_annotated(implement, {"return": returned}))


def _static_plugin(trt: Any, plugin: Any, name: str, entry: Entry, ptx: bytes) -> None:
    def describe(q, k, v, lengths, mask, heads):  # type: ignore[no-untyped-def]
        return k.like()

    def implement(q, k, v, lengths, mask, heads, outputs, tactic):  # type: ignore[no-untyped-def]
        head = entry.constants["HEAD"]
        length, width = k.shape_expr[1], heads * head
        strides = [length * width, width, head]
        numbers = [q.shape_expr[0], length, heads, *(4 * strides)]
        grid = k.shape_expr[0] * heads, plugin.cdiv(length, entry.constants["ROWS"])
        return _launch(plugin, entry, ptx, grid, (5, numbers, 1))

    _add(plugin, name, describe, ("q", "k", "v", "lengths", "mask"), 1, implement)


def _leaky_plugin(trt: Any, plugin: Any, name: str, entry: Entry, ptx: bytes) -> None:
    def describe(q, k, null_key, mask, heads):  # type: ignore[no-untyped-def]
        batch, n_tgt, n_src = q.shape_expr[0], q.shape_expr[1], k.shape_expr[1]
        return (
            plugin.from_shape_expr((batch, n_tgt, n_src), dtype=trt.float32),
            plugin.from_shape_expr((batch, n_tgt), dtype=trt.float32),
        )

    def implement(q, k, null_key, mask, heads, outputs, tactic):  # type: ignore[no-untyped-def]
        head = entry.constants["HEAD"]
        if heads != entry.constants["HEADS"]:
            raise ValueError(f"the kernel is for {entry.constants['HEADS']} heads, not {heads}")
        n_tgt, n_src, width = q.shape_expr[1], k.shape_expr[1], heads * head
        numbers = [n_tgt, n_src, n_tgt * width, width, head, n_src * width, width, head]
        grid = q.shape_expr[0], plugin.cdiv(n_tgt, entry.constants["ROWS"])
        return _launch(plugin, entry, ptx, grid, (4, numbers, 2))

    _add(plugin, name, describe, ("q", "k", "null_key", "mask"), 2, implement)


def _launch(
    plugin: Any, entry: Entry, ptx: bytes, grid: Any, arguments: tuple[int, Sequence[Any], int]
) -> Any:
    """What an ahead-of-time implementation returns. The kernel gets the inputs' pointers, numbers,
    and the outputs' pointers: that is the order of our kernels' arguments."""
    inputs, numbers, outputs = arguments
    kinds = [kind[:1] == "*" for kind in entry.arguments]
    if kinds != [True] * inputs + [False] * len(numbers) + [True] * outputs:
        raise ValueError(f"{entry.name} takes other arguments than its plugin passes")
    parameters = plugin.KernelLaunchParams()
    parameters.grid_x, parameters.grid_y = grid
    parameters.block_x = entry.threads
    parameters.shared_mem = entry.shared
    extra = plugin.SymIntExprs.from_tuple([plugin.SymInt32(number) for number in numbers])
    return entry.entry, ptx, parameters, extra


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

    def outputs(self) -> list[str]:
        """The names of all outputs; each needs an address in every run."""
        engine, mode = self._engine, self._trt.TensorIOMode.OUTPUT
        names = [str(engine.get_tensor_name(i)) for i in range(engine.num_io_tensors)]
        return [name for name in names if engine.get_tensor_mode(name) == mode]

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
