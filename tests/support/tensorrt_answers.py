"""Ask our plugins what a build would, through NVIDIA's own `tensorrt.plugin`; print the answers.

Run by test_tensorrt_bindings. TensorRT's library is not here, so the registry, dimensions and their
arithmetic are stand-ins, in the places where the library's would be.
"""

import ctypes
import json
import sys
from types import SimpleNamespace

import numpy as np

for file in sys.argv[1:]:
    ctypes.CDLL(file, ctypes.RTLD_GLOBAL)

import tensorrt_bindings as trt  # noqa: E402

SIZES = {"B": 3, "T": 19, "S": 40, "D": 256, "K": 256, "1": 1}


class Expression:
    """A dimension by its value."""

    def __init__(self, value):
        self.value = value

    def is_constant(self):
        return True

    def get_constant_value(self):
        return self.value


class Expressions:
    def constant(self, value):
        return Expression(value)

    def operation(self, kind, a, b):
        work = {"SUM": lambda: a.value + b.value, "PROD": lambda: a.value * b.value,
                "CEIL_DIV": lambda: -(-a.value // b.value)}  # fmt: skip
        return Expression(work[str(kind).split(".")[-1]]())


CREATORS: dict = {}


class Registry:
    def register_creator(self, creator, namespace):
        CREATORS[namespace, creator.name] = creator

    def get_creator(self, name, version, namespace):
        return CREATORS[namespace, name]


class Symbol:
    """What a number of a launch becomes."""


class Numbers(dict):
    nbSymExprs = 0


def put_stand_ins() -> None:
    trt.get_plugin_registry = Registry
    trt.IDimensionExpr, trt.ISymExpr = Expression, Symbol
    trt.DimsExprs = lambda n: [None] * n
    sys.modules["tensorrt"] = trt
    import tensorrt_bindings.plugin as plugin

    sys.modules["tensorrt.plugin"] = plugin


def describe_tensor(kind, shape):
    dims = tuple(SIZES[name] for name in shape)
    found = trt.DynamicPluginTensorDesc()
    found.desc.type, found.desc.format = kind, trt.TensorFormat.LINEAR
    found.desc.dims = found.min = found.opt = found.max = dims
    return found


def ask_plugin(namespace, op, inputs, outputs):
    """Ask a plugin of ours everything that a build asks."""
    creator = CREATORS[namespace, op]
    heads = trt.PluginField("heads", np.array([4]), trt.PluginFieldType.INT64)
    request = trt.QuickPluginCreationRequest.PREFER_AOT
    made = creator.create_plugin(
        op, namespace, trt.PluginFieldCollection([heads]), trt.TensorRTPhase.BUILD, request
    )
    kinds = [kind for kind, _ in inputs]
    types = made.get_output_data_types(kinds, [len(shape) for _, shape in inputs])
    given = [[Expression(SIZES[name]) for name in shape] for _, shape in inputs]
    shapes = made.get_output_shapes(given, [], Expressions())
    ports = [describe_tensor(*one) for one in (*inputs, *outputs)]
    made.get_supported_format_combinations(ports, len(inputs))
    made.set_tactic(0)
    launch, numbers = SimpleNamespace(), Numbers()
    made.get_launch_params(given, ports, len(inputs), launch, numbers, Expressions())
    ends = [port.desc for port in ports]
    name, ptx = made.get_kernel(ends[: len(inputs)], ends[len(inputs) :])
    return {
        "types": [str(one).split(".")[-1] for one in types],
        "shapes": [[one.value for one in shape] for shape in shapes],
        "launch": {key: value.expr.value for key, value in vars(launch).items()},
        "numbers": [numbers[i].expr.value for i in range(numbers.nbSymExprs)],
        "bits": sorted({str(one.dtype) for one in numbers.values()}),
        "kernel": [name, bytes(ptx).decode()],
    }


def print_answers() -> None:
    put_stand_ins()
    from ...engine.runtime.gpu.kernels.launch import KernelArchive
    from ...engine.runtime.gpu.tensorrt_api import TensorrtApi
    from .fake_gpu import pack_fake_archive
    from .kernel_cases import attention_entries

    said = {"version": trt.__version__}
    both = KernelArchive(pack_fake_archive(*attention_entries(64)), "")
    api = TensorrtApi("tensorrt")
    found = api.register_plugins(both, "fp16")
    said["ops"] = sorted(found.ops)
    said["again"] = (
        TensorrtApi("tensorrt").register_plugins(both, "fp16") == found
    )  # nothing is registered twice
    other = TensorrtApi("tensorrt").register_plugins(
        KernelArchive(pack_fake_archive(*attention_entries(32)), ""), "fp16"
    )
    said["other"] = other.namespace != found.namespace
    half, real, whole = trt.float16, trt.float32, trt.int32
    said["static"] = ask_plugin(
        found.namespace, "StaticAttention",
        [(half, "1TD"), (half, "BTD"), (half, "BTD"), (whole, "B"), (half, "B1TT")],
        [(half, "BTD")],
    )  # fmt: skip
    said["leaky"] = ask_plugin(
        found.namespace, "LeakyAttention",
        [(half, "BTD"), (half, "BSD"), (half, "K"), (half, "B11S")],
        [(real, "BTS"), (real, "BT")],
    )  # fmt: skip
    said["members"] = {
        name: [one for one in wanted if not hasattr(getattr(trt, name, None), one)]
        for name, wanted in json.loads(sys.stdin.read()).items()
    }
    print(json.dumps(said))


if __name__ == "__main__":
    print_answers()
