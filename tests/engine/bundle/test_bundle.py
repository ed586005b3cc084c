"""Bundles: what is written is read again, and every kind of damage has its own clear error."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from ....engine.bundle.bundle import Bundle
from ....engine.bundle.manifest import Calibration, Manifest, Thresholds, VocabularyFiles
from ....engine.bundle.writing import write_bundle
from ....engine.errors import BackendError, BundleError, MxError
from ....engine.protobuf import encode_field as field

# A model with one graph of one node: Identity(x) -> y.
ONNX = b"\x08\x0a" + field(7, field(1, field(1, b"x") + field(2, b"y") + field(4, b"Identity")))


@pytest.fixture(scope="module")
def spm() -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ein haus", "a house", "das haus", "the house"]),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(
        name="de-en",
        languages=("de", "en"),
        max_length=256,
        graphs={"fp32": "model.onnx", "int8": "model.int8.onnx"},
        default_dtype="int8",
        tokenizer=VocabularyFiles("src.spm", "src.spm", True),
        thresholds=Thresholds(0.2, 0.5, 0.1, "by hand"),
        calibration=Calibration((0.0, 0.5, 1.0), (0.0, 0.9, 1.0), "by hand"),
        model={"width": 8},
        training={},
        measured={},
        made_by="test",
        files={},
    )


@pytest.fixture
def files(spm: bytes) -> dict[str, bytes]:
    return {"model.onnx": ONNX, "model.int8.onnx": ONNX, "src.spm": spm, "README.md": b"# card\n"}


@pytest.fixture(params=["m.mx", "m.zip"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest, files: dict[str, bytes]) -> Path:
    write_bundle(tmp_path / "m.mx", manifest, files)
    return tmp_path / "m.mx"


def change(folder: Path, **values: object) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


# ---- reading what was written ----


def test_what_is_written_is_read_again(
    path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    write_bundle(path, manifest, files)
    bundle = Bundle.load(path)
    assert bundle.languages == ("de", "en")
    assert bundle.max_length == 256
    assert bundle.dtypes == ("int8", "fp32")
    assert bundle.read_graph() == bundle.read_graph("fp32") == ONNX
    assert bundle.threshold() == 0.2
    assert bundle.threshold("precision") == 0.5
    src, tgt = bundle.tokenizers
    assert src is tgt and src.lowercase
    assert src.encode(["Haus"]) == src.encode(["haus"])
    np.testing.assert_allclose(bundle.calibrate([0.0, 0.25, 0.5, 1.0]), [0, 0.45, 0.9, 1])
    assert bundle.manifest == replace(manifest, files=bundle.manifest.files)


def test_folder_and_zip_have_the_same_digest(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    bundles = [write_bundle(tmp_path / name, manifest, files) for name in ("a.mx", "b.zip")]
    assert bundles[0].digest == bundles[1].digest


def test_the_same_content_gives_the_same_bytes(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    for name in ("a.zip", "b.zip"):
        write_bundle(tmp_path / name, manifest, files)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_bytes_of_the_format(folder: Path, files: dict[str, bytes]) -> None:
    assert {file.name for file in folder.iterdir()} == {*files, "manifest.json"}
    text = (folder / "manifest.json").read_bytes()
    assert text.startswith(b'{\n  "format": "mx-bundle",\n  "version": 3,\n  "name": "de-en",\n')
    assert text.endswith(b"}\n")
    stored = json.loads(text)["files"]["model.onnx"]
    assert stored == {"size": len(ONNX), "sha256": hashlib.sha256(ONNX).hexdigest()}
    assert Bundle.load(folder).digest == hashlib.sha256(text).hexdigest()


def test_a_bundle_of_the_first_version_is_read(folder: Path) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_bytes())
    del values["tokenizer"]["fold_accents"], values["read"], values["readings"]
    path.write_text(json.dumps({**values, "version": 1}), "utf-8")
    assert not Bundle.load(folder).manifest.tokenizer.fold_accents


def test_a_bundle_that_can_be_read_one_way_only_says_so(folder: Path) -> None:
    assert Bundle.load(folder).choose_reading(None).manifest.read == ""
    with pytest.raises(BundleError, match="cannot be read as prior: there is one way only"):
        Bundle.load(folder).choose_reading("prior")


def test_a_zip_made_by_hand_from_the_folder(folder: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "hand.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"m.mx/{file.name}")
    assert Bundle.load(tmp_path / "hand.zip").read_graph() == ONNX


def test_files_may_be_links_because_their_hashes_are_checked(folder: Path, tmp_path: Path) -> None:
    (folder / "model.onnx").rename(tmp_path / "blob")
    (folder / "model.onnx").symlink_to(tmp_path / "blob")
    assert Bundle.load(folder).read_graph("fp32") == ONNX


# ---- damage ----


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": "zip"}, "not a model bundle"),
        ({"version": 4}, "version 4, but this mx-align reads up to 3; update"),
        ({"version": "1"}, "no valid version"),
        ({"extra": 1}, "unknown 'extra'"),
        ({"max_length": 0}, "max_length must be a number of pieces"),
        ({"languages": ["de"]}, "languages must be two language codes"),
        ({"languages": ["de+", "en"]}, "languages must be two language codes"),
        ({"languages": ["de+zh-Hans", 1]}, "languages must be two language codes"),
        ({"graphs": {"fp64": "model.onnx"}}, "graphs must have some of the keys fp32"),
        ({"graphs": {"fp32": "../model.onnx"}}, "fp32 must be a file name without a path"),
        ({"graphs": {"fp32": "other.onnx"}, "default_precision": "fp32"}, "files lacks other.onnx"),
        ({"default_precision": "fp16"}, "no graph of the default precision fp16"),
        ({"tokenizer": {"src": "src.spm"}}, "tokenizer must have the keys src, tgt, lowercase"),
        (
            {"thresholds": {"aer": 2, "precision": 0.5, "recall": 0.1, "chosen": ""}},
            "thresholds aer must be a number from 0 to 1",
        ),
        (
            {"calibration": {"scores": [0, 1], "probabilities": [1, 0], "chosen": ""}},
            "probabilities must be two or more rising numbers",
        ),
        (
            {"calibration": {"scores": [0, 1], "probabilities": [0, 0.5, 1], "chosen": ""}},
            "more scores than probabilities, or fewer",
        ),
        (
            {"files": {"/etc/passwd": {"size": 1, "sha256": "0" * 64}}},
            "'/etc/passwd', which is not",
        ),
        ({"files": {"a\\b": {"size": 1, "sha256": "0" * 64}}}, "which is not a file name"),
        ({"files": {"NUL.onnx": {"size": 1, "sha256": "0" * 64}}}, "which is not a file name"),
        ({"files": {"a": {"size": -1, "sha256": "0" * 64}}}, "a size must be a size in bytes"),
    ],
)
def test_a_wrong_manifest(folder: Path, values: dict[str, object], message: str) -> None:
    change(folder, **values)
    with pytest.raises(BundleError, match=message):
        Bundle.load(folder)


def test_missing_keys_are_named_all_at_once(folder: Path) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    del data["name"], data["graphs"]
    (folder / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(BundleError, match="missing graphs; missing name"):
        Bundle.load(folder)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[]", b'{"a": NaN}', b"[" * 100_000])
def test_a_manifest_that_is_no_json_object(folder: Path, text: bytes) -> None:
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(BundleError, match=r"not valid JSON|not a model bundle"):
        Bundle.load(folder)


def test_a_missing_file(folder: Path) -> None:
    (folder / "src.spm").unlink()
    with pytest.raises(BundleError, match=r"incomplete: it lacks src\.spm"):
        Bundle.load(folder)


def test_a_cut_file(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(ONNX[:-1])
    with pytest.raises(BundleError, match=r"model\.onnx has .* bytes instead of"):
        Bundle.load(folder)


def test_a_changed_file(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(ONNX[:-1] + b"z")
    bundle = Bundle.load(folder)
    assert bundle.read_graph("int8") == ONNX
    with pytest.raises(BundleError, match="SHA-256 differs"):
        bundle.read_graph("fp32")


def test_a_dtype_that_is_not_there(folder: Path) -> None:
    with pytest.raises(BundleError, match="has no fp16 graph; it has int8, fp32"):
        Bundle.load(folder).read_graph("fp16")


def only_graphs(manifest: Manifest, files: dict[str, bytes], *dtypes: str) -> dict[str, object]:
    """What `write_bundle` needs for a bundle of these dtypes, the first of them its default."""
    graphs = {dtype: f"{dtype}.onnx" for dtype in dtypes}
    spm = {"src.spm": files["src.spm"]}
    return {
        "manifest": replace(manifest, graphs=graphs, default_dtype=dtypes[0]),
        "files": {**spm, **dict.fromkeys(graphs.values(), ONNX)},
    }


@pytest.mark.parametrize(
    ("dtypes", "on_cpu", "on_gpu"),
    [
        (("fp32", "fp16", "int8"), "fp32", "fp16"),
        (("int8", "fp32"), "int8", "fp32"),
        (("fp16", "int8"), "int8", "fp16"),
        (("fp16",), "fp16", "fp16"),
    ],
)
def test_each_backend_gets_the_dtype_that_suits_it(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes],
    dtypes: tuple[str, ...], on_cpu: str, on_gpu: str,
) -> None:  # fmt: skip
    bundle = write_bundle(tmp_path / "m.mx", **only_graphs(manifest, files, *dtypes))
    assert bundle.choose_dtype(None, "cpu") == on_cpu
    assert {bundle.choose_dtype(None, name) for name in ("cuda", "trt", "trt-rtx")} == {on_gpu}
    assert all(bundle.choose_dtype(dtype, "cpu") == dtype for dtype in dtypes)


def test_int8_is_not_for_gpus(tmp_path: Path, manifest: Manifest, files: dict[str, bytes]) -> None:
    bundle = write_bundle(tmp_path / "m.mx", **only_graphs(manifest, files, "int8"))
    with pytest.raises(BackendError, match="trt: int8 graphs are for CPUs; give --dtype fp16"):
        bundle.choose_dtype("int8", "trt")
    with pytest.raises(BackendError, match=r"cuda: .*m\.mx has no fp16 or fp32 graph"):
        bundle.choose_dtype(None, "cuda")
    with pytest.raises(BundleError, match="has no fp16 graph; it has int8"):
        bundle.choose_dtype("fp16", "trt")


def test_a_threshold_for_something_unknown(folder: Path) -> None:
    with pytest.raises(MxError, match="no threshold for 'speed'"):
        Bundle.load(folder).threshold("speed")  # type: ignore[arg-type]


def test_paths_that_are_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no model bundle"):
        Bundle.load(tmp_path / "none")
    with pytest.raises(BundleError, match=r"it has no manifest\.json"):
        Bundle.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BundleError, match="neither a bundle folder nor a zip file"):
        Bundle.load(tmp_path / "text")


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_damaged_zip_is_an_error_of_ours(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes], place: int
) -> None:
    write_bundle(tmp_path / "m.zip", manifest, files)
    data = bytearray((tmp_path / "m.zip").read_bytes())
    at = len(data) * place // 100
    data[at : at + 40] = b"\xaa" * 40
    (tmp_path / "m.zip").write_bytes(data)
    with pytest.raises(BundleError):
        bundle = Bundle.load(tmp_path / "m.zip")
        for name in bundle.manifest.files:
            bundle.read_file(name)


def test_a_zip_entry_that_unpacks_to_more_than_it_says(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    write_bundle(tmp_path / "m.zip", manifest, files)
    data = (tmp_path / "m.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        with zipfile.ZipFile(io.BytesIO(data)) as old:
            archive.writestr("manifest.json", old.read("manifest.json"))
        for name in files:
            archive.writestr(name, b"\0" * 10_000_000)
    with pytest.raises(BundleError, match="unpacks to 10,000,000 bytes"):
        Bundle.load(tmp_path / "bomb.zip")


# ---- writing ----


def test_an_existing_bundle_is_kept_without_force(
    path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    old = write_bundle(path, manifest, files)
    with pytest.raises(MxError, match="exists already"):
        write_bundle(path, replace(manifest, name="new"), files)
    assert Bundle.load(path).digest == old.digest
    assert write_bundle(path, replace(manifest, name="new"), files, force=True).name == "new"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_force_replaces_nothing_but_bundles(
    tmp_path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("1")
    (tmp_path / "file").write_text("1")
    for name in ("thesis", "file"):
        with pytest.raises(MxError, match="not a bundle, so --force does not replace it"):
            write_bundle(tmp_path / name, manifest, files, force=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "1"


def test_a_failed_write_leaves_nothing_and_keeps_the_old_bundle(
    path: Path, manifest: Manifest, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_bundle(path, manifest, files)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(MxError, match="No space left on device"):
        write_bundle(path, replace(manifest, name="new"), files, force=True)
    monkeypatch.undo()
    assert Bundle.load(path).digest == old.digest
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_manifest_that_could_not_be_read_is_not_written(
    path: Path, manifest: Manifest, files: dict[str, bytes]
) -> None:
    with pytest.raises(BundleError, match=r"files lacks model\.fp16\.onnx"):
        write_bundle(path, replace(manifest, graphs={"int8": "model.fp16.onnx"}), files)
    assert not list(path.parent.iterdir())
