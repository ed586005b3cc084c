"""Bundles from strangers: what could do more than align is refused before it is loaded."""

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ...engine.aligner import Aligner
from ...engine.bundle.bundle import Bundle
from ...engine.bundle.onnx_check import check_ops, check_self_contained
from ...engine.bundle.spm_check import check_pieces_model, try_pieces_model
from ...engine.errors import BackendError, BundleError
from ...engine.jobs.journal import write_records
from ...engine.jobs.merge import merge_shards
from ...engine.protobuf import encode_field as field
from ...engine.protobuf import read_fields
from ...engine.runtime.onnx_cpu import check_output, start_session
from ...engine.types import Batch
from ..support.bundles import vocabulary, write_toy


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy.mx").path


def rewrite(toy: Path, name: str, data: bytes) -> Path:
    """Put another file into a bundle, with its size and hash in the manifest."""
    import hashlib

    (toy / name).write_bytes(data)
    values = json.loads((toy / "manifest.json").read_text())
    values["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (toy / "manifest.json").write_text(json.dumps(values))
    return toy


# ---- graphs ----


def node(op: bytes, *more: bytes, domain: bytes = b"") -> bytes:
    parts = [field(4, op), *more]
    return field(1, b"".join(parts + ([field(7, domain)] if domain else [])))


def model(nodes: bytes, *functions: bytes) -> bytes:
    return b"\x08\x0a" + field(7, nodes) + b"".join(field(25, one) for one in functions)


def function(name: bytes, *calls: bytes) -> bytes:
    body = b"".join(field(7, field(4, call) + field(7, b"mx")) for call in calls)
    return field(1, name) + body + field(10, b"mx")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (model(node(b"Loop")), "the op Loop"),
        (model(node(b"Add", field(5, field(6, b"")))), "holds another graph"),
        (model(node(b"Evil", domain=b"com.microsoft")), r"com\.microsoft\.Evil"),
        (model(node(b"A", domain=b"mx"), function(b"A", b"A")), "too many nodes"),
        (b"\x08\x0a" + field(7, b"") + field(20, b""), "a graph for training"),
        (
            model(
                node(b"0", domain=b"mx"),
                *(function(b"%d" % n, *[b"%d" % (n + 1)] * 20) for n in range(5)),
            ),
            "too many nodes",
        ),
    ],
    ids=["loop", "subgraph", "custom op", "calls itself", "training", "unfolds"],
)
def test_graphs_that_do_more_than_compute(graph: bytes, words: str):
    check_self_contained(graph, "m")
    with pytest.raises(BundleError, match=words):
        check_ops(graph, "m")


def test_a_tensor_larger_than_its_file():
    huge = field(5, b"\x08\xff\xff\xff\xff\x07" * 3)
    with pytest.raises(BundleError, match="larger than the file"):
        check_self_contained(model(huge), "m")


def test_a_graph_in_the_runtimes_own_format_is_not_loaded():
    data = b"\x20\x00\x00\x00ORTM" + bytes(400)
    with pytest.raises(BundleError, match=r"protobuf|parse|cannot load"):
        start_session(data, ["CPUExecutionProvider"], "m")


def test_outputs_of_a_wrong_shape_or_without_numbers():
    ids, lengths = np.ones((2, 3), np.int32), np.full(2, 3, np.int32)
    batch = Batch(ids, lengths, ids, lengths)
    good = np.ones((2, 3, 3), np.float32)
    check_output("scores", good, 2, batch)
    for bad in (good[:1], good[:, :, :1], good.astype(np.int64)):
        with pytest.raises(BackendError, match="shape"):
            check_output("scores", bad, 2, batch)
    good[1, 1, 1] = np.nan
    with pytest.raises(BackendError, match="not finite"):
        check_output("scores", good, 2, batch)


# ---- manifests and zip files ----


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "\x1b]0;owned\x07"}, "control characters"),
        ({"max_length": 1 << 40}, "at most"),
        ({"training": {"signature": "\u202egnp.exe"}}, "control characters"),
    ],
)
def test_manifests_that_lie(toy: Path, change: dict, words: str):
    values = json.loads((toy / "manifest.json").read_text())
    (toy / "manifest.json").write_text(json.dumps(values | change))
    with pytest.raises(BundleError, match=words) as error:
        Bundle.load(toy)
    assert "\x1b" not in str(error.value)


def test_a_key_that_stands_twice(toy: Path):
    text = (toy / "manifest.json").read_text()
    (toy / "manifest.json").write_text(text.replace("{", '{"max_length": 9,', 1))
    with pytest.raises(BundleError, match="stands twice"):
        Bundle.load(toy)


def test_a_zip_that_unpacks_to_too_much(toy: Path, tmp_path: Path):
    rewrite(toy, "zeros.bin", bytes(20 << 20))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in toy.iterdir():
            archive.write(path, path.name)
    with pytest.raises(BundleError, match=r"zeros\.bin unpacks to 20,971,520 bytes"):
        Bundle.load(tmp_path / "bomb.zip")


def test_shards_named_outside_their_folder(tmp_path: Path):
    shard = {"file": "../secret", "first_line": 1, "pairs": 1, "bytes": 1, "sha256": "0"}
    write_records(tmp_path / "manifest.json", [{"mx-align": 3, "shards": [shard]}])
    with pytest.raises(Exception, match="no file of its folder"):
        merge_shards([tmp_path], tmp_path / "out")


# ---- vocabularies ----


def with_table(table: bytes) -> bytes:
    """Return a SentencePiece model with this table of characters."""
    return vocabulary() + field(3, field(2, table))


def test_vocabularies_that_lead_their_reader_outside():
    check_pieces_model(vocabulary(), "m")
    check_pieces_model(with_table(struct.pack("<I256I", 1024, *[0] * 256) + b"a\0"), "m")
    tables = {
        "cut": struct.pack("<I", 1 << 20) + b"abc",
        "leads outside": struct.pack("<I256I", 1024, *[(1 << 20) << 10] * 256) + b"a\0",
        "no end": struct.pack("<I256I", 1024, *[0] * 256) + b"a",
    }
    for words, table in tables.items():
        with pytest.raises(BundleError, match=words):
            check_pieces_model(with_table(table), "m")
    for broken in (b"", b"\xff" * 30, vocabulary()[:-5], vocabulary() + field(1, field(1, b""))):
        with pytest.raises(BundleError, match="not a SentencePiece model"):
            check_pieces_model(broken, "m")
    assert any(number == 1 for number, *_ in read_fields(vocabulary()))


def test_a_strangers_vocabulary_is_tried_in_another_process(toy: Path):
    """This one passes the checks of its bytes and cannot be loaded all the same."""
    pieces = field(1, field(1, b"<unk>") + b"\x18\x02") * 1
    check_pieces_model(pieces, "m")
    with pytest.raises(BundleError, match="trial of it ended with"):
        try_pieces_model(pieces + field(2, b"\x18\x63"), "m")
    rewrite(toy, "joint.spm", pieces + field(2, b"\x18\x63"))
    with pytest.raises(BundleError, match="SentencePiece"):
        Aligner.load(toy).align_pair("a", "b")
