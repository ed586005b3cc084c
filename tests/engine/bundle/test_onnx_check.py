"""ONNX files that refer to other files are refused, however they hide it."""

import struct

import pytest

from ....engine.bundle.onnx_check import _SCHEMA, check_self_contained
from ....engine.errors import BundleError
from ....engine.protobuf import encode_field as field

# A model with one graph of one node: Identity(x) -> y.
IDENTITY = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
ONNX = b"\x08\x0a" + field(7, field(1, IDENTITY))


def node(attribute: bytes) -> bytes:
    return b"\x08\x0a" + field(7, field(1, field(4, b"Constant") + field(5, attribute)))


EXTERNAL = field(13, field(1, b"location") + field(2, b"/etc/passwd"))


@pytest.mark.parametrize(
    "model",
    [
        b"\x08\x0a" + field(7, field(5, EXTERNAL)),
        b"\x08\x0a" + field(7, field(5, b"\x70\x01")),
        b"\x08\x0a" + field(7, field(15, field(1, EXTERNAL))),
        node(field(5, EXTERNAL)),
        node(field(6, field(5, EXTERNAL))),
    ],
    ids=["initializer", "location only", "sparse", "constant", "subgraph"],
)
def test_weights_in_another_file(model: bytes) -> None:
    with pytest.raises(BundleError, match="keeps weights in another file"):
        check_self_contained(model, "m")


def test_compiled_code_in_another_file() -> None:
    with pytest.raises(BundleError, match="loads compiled code"):
        check_self_contained(b"\x08\x0a" + field(7, field(1, field(4, b"EPContext"))), "m")


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xff" * 20, ONNX[:-3], ONNX + field(7, b""), b"\x08\x0a"]
)
def test_bytes_that_are_no_onnx(data: bytes) -> None:
    with pytest.raises(BundleError, match="not a valid ONNX file"):
        check_self_contained(data, "m")


def test_deep_nesting() -> None:
    graph = b""
    for _ in range(60):
        body = field(6, graph)
        graph = field(1, field(5, body))
    with pytest.raises(BundleError, match="nested too deeply"):
        check_self_contained(field(7, graph), "m")


def test_the_scan_knows_every_way_to_a_tensor() -> None:
    """The table of fields agrees with the real definition of ONNX."""
    onnx = pytest.importorskip("onnx")
    reach = {
        "Model": onnx.ModelProto,
        "Training": onnx.TrainingInfoProto,
        "Graph": onnx.GraphProto,
        "Function": onnx.FunctionProto,
        "Node": onnx.NodeProto,
        "Attribute": onnx.AttributeProto,
        "SparseTensor": onnx.SparseTensorProto,
        "Tensor": onnx.TensorProto,
    }
    names = {kind.DESCRIPTOR.name: name for name, kind in reach.items()}
    for name, kind in reach.items():
        wanted = {
            f.number: names[f.message_type.name]
            for f in kind.DESCRIPTOR.fields
            if f.message_type is not None and f.message_type.name in names
        }
        assert _SCHEMA[name] == wanted
    numbers = {f.name: f.number for f in onnx.TensorProto.DESCRIPTOR.fields}
    assert (numbers["external_data"], numbers["data_location"]) == (13, 14)
    assert {f.name: f.number for f in onnx.NodeProto.DESCRIPTOR.fields}["op_type"] == 4


def test_fixed_width_fields_are_skipped() -> None:
    fixed = bytes([15 << 3 | 5]) + struct.pack("<f", 1.0) + bytes([14 << 3 | 1]) + bytes(8)
    check_self_contained(ONNX + fixed, "m")


@pytest.mark.parametrize("message", ["Tensor", "Model"])
def test_a_tag_of_more_than_32_bits_hides_no_field(message: str) -> None:
    """Field 13 written with a 33rd bit: readers that keep 32 bits see it, so we must."""
    hidden = bytes([0xEA, 0x80, 0x80, 0x80, 0x10, 0])
    tensor = bytes([5 << 3 | 2, len(hidden)]) + hidden
    graph = bytes([7 << 3 | 2, len(tensor)]) + tensor
    with pytest.raises(BundleError, match="not a valid ONNX file"):
        check_self_contained(graph if message == "Tensor" else ONNX + hidden, "m")
