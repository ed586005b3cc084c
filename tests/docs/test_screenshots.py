"""The tool that takes the screenshots of the README."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "docs" / "screenshots.py"


@pytest.mark.slow
def test_every_screenshot_is_taken(browser, tmp_path):
    if not TOOL.exists():
        pytest.skip("no docs here")
    command = [sys.executable, "-m", "mx_align.docs.screenshots", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    sizes = {
        file.stem: struct.unpack(">2I", file.read_bytes()[16:24]) for file in tmp_path.iterdir()
    }
    assert sizes.keys() == {"view-links", "view-heatmap", "view-dark", "view-phone"}
    assert sizes["view-phone"][0] == 585 and sizes["view-links"][0] == 1770
    # Higher than the tools alone, no higher than tools and one pair.
    assert all(300 < height < 1500 for _, height in sizes.values()), sizes
