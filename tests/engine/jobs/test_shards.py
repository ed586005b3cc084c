"""A folder of shards is complete, goes on, or says why not."""

import json

import pytest

from ....engine.errors import MxError
from ....engine.jobs.shards import Shards


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def test_in_any_order_and_over_several_runs(tmp_path):
    folder = tmp_path / "out"
    with Shards.open(folder, ".links", {"model": "m"}) as shards:
        shards.add(1, b"b\n", {"pairs": 1})
        with pytest.raises(MxError, match="has 1 of 3 shards"):
            shards.finish(3, {})
        with (
            pytest.raises(MxError, match="another mx-align is writing"),
            Shards.open(folder, ".links", {"model": "m"}),
        ):
            pass
    (folder / ".part-000002.links.1.tmp").write_text("half")
    with open(folder / "journal", "ab") as log:
        log.write(b'{"block": 2, "fi')  # killed here
    with Shards.open(folder, ".links", {"model": "m"}) as shards:
        assert list(shards.records) == [1]
        shards.add(2, b"", {"pairs": 0})
        shards.add(0, b"a\n", {"pairs": 1})
        shards.finish(3, {"pairs": 2})
    assert names(folder) == [
        "manifest.json", "part-000000.links", "part-000001.links", "part-000002.links"
    ]  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["pairs"] == 2 and [s["pairs"] for s in manifest["shards"]] == [1, 1, 0]
    with Shards.open(folder, ".links", {"model": "m"}) as shards:
        assert shards.complete and len(shards.records) == 3


def test_a_file_that_was_lost_is_made_again(tmp_path):
    with Shards.open(tmp_path, ".links", {}) as shards:
        shards.add(0, b"a\n", {})
        shards.add(1, b"b\n", {})
    (tmp_path / "part-000000.links").write_bytes(b"a")
    with Shards.open(tmp_path, ".links", {}) as shards:
        assert list(shards.records) == [1]


def test_other_settings_and_strange_folders(tmp_path):
    folder = tmp_path / "out"
    with Shards.open(folder, ".links", {"model": "m"}) as shards:
        shards.add(0, b"a\n", {})
    with (
        pytest.raises(MxError, match=r"was begun with model 'm', now 'n'.*--restart"),
        Shards.open(folder, ".links", {"model": "n"}),
    ):
        pass
    with Shards.open(folder, ".links", {"model": "n"}, restart=True) as shards:
        assert not shards.records and names(folder) == ["journal"]
        shards.finish(0, {})
    with (
        pytest.raises(MxError, match="was begun with"),
        Shards.open(folder, ".links", {"model": "m"}),
    ):
        pass
    (tmp_path / "note").write_text("mine")
    with (
        pytest.raises(MxError, match="has files but no links"),
        Shards.open(tmp_path, ".links", {}),
    ):
        pass
