"""A folder of shards is complete, goes on, or says why not."""

import json

import pytest

from ....engine.errors import MxError
from ....engine.jobs.output_files import OutputFolder


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def test_in_any_order_and_over_several_runs(tmp_path):
    folder = tmp_path / "out"
    with OutputFolder(folder, ".links", {"model": "m"}) as output:
        output.write_block(1, b"b\n", {"pairs": 1})
        with pytest.raises(MxError, match="has 1 of 3 shards"):
            output.finish(3, {})
        with (
            pytest.raises(MxError, match="another mx-align is writing"),
            OutputFolder(folder, ".links", {"model": "m"}),
        ):
            pass
    (folder / ".part-000002.links.1.tmp").write_text("half")
    with open(folder / "journal", "ab") as log:
        log.write(b'{"block": 2, "fi')  # killed here
    with OutputFolder(folder, ".links", {"model": "m"}) as output:
        assert [record["block"] for record in output.records] == [1]
        output.write_block(2, b"", {"pairs": 0})
        output.write_block(0, b"a\n", {"pairs": 1})
        output.finish(3, {"pairs": 2})
    assert names(folder) == [
        "manifest.json", "part-000000.links", "part-000001.links", "part-000002.links"
    ]  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["pairs"] == 2 and [s["pairs"] for s in manifest["shards"]] == [1, 1, 0]
    with OutputFolder(folder, ".links", {"model": "m"}) as output:
        assert output.complete and len(output.records) == 3


def test_a_file_that_was_lost_is_made_again(tmp_path):
    with OutputFolder(tmp_path, ".links", {}) as output:
        output.write_block(0, b"a\n", {})
        output.write_block(1, b"b\n", {})
    (tmp_path / "part-000000.links").write_bytes(b"a")
    with OutputFolder(tmp_path, ".links", {}) as output:
        assert [record["block"] for record in output.records] == [1]


def test_other_settings_and_strange_folders(tmp_path):
    folder = tmp_path / "out"
    with OutputFolder(folder, ".links", {"model": "m"}) as output:
        output.write_block(0, b"a\n", {})
    with (
        pytest.raises(MxError, match=r"was begun with another model; .*--restart"),
        OutputFolder(folder, ".links", {"model": "n"}),
    ):
        pass
    with OutputFolder(folder, ".links", {"model": "n"}, restart=True) as output:
        assert not output.records and names(folder) == ["journal"]
        output.finish(0, {})
    with (
        pytest.raises(MxError, match="was begun with"),
        OutputFolder(folder, ".links", {"model": "m"}),
    ):
        pass
    (tmp_path / "note").write_text("mine")
    with (
        pytest.raises(MxError, match="has files but no links"),
        OutputFolder(tmp_path, ".links", {}),
    ):
        pass


def test_a_folder_of_an_older_version(tmp_path):
    (tmp_path / "manifest.json").write_text('{"mx-align": 1, "wish": "aer", "shards": []}')
    with (
        pytest.raises(MxError, match=r"begun with another version of mx-align; .*--restart"),
        OutputFolder(tmp_path, ".links", {"optimize_for": "aer"}),
    ):
        pass
    (tmp_path / "manifest.json").write_text('{"mx-align": 3, "check": "0"}')
    with pytest.raises(MxError, match="damaged"), OutputFolder(tmp_path, ".links", {}):
        pass
