"""A run writes what it was asked for and nothing else: no telemetry of the libraries it uses."""

import os
import subprocess
import sys
from pathlib import Path

from ..support.bundles import write_toy


def test_a_run_leaves_no_file_but_its_own(tmp_path: Path):
    bundle = write_toy(tmp_path / "toy.mx").path
    (tmp_path / "pairs").write_text("the cat ||| die Katze\n")
    home = tmp_path / "home"
    home.mkdir()
    unset = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    line = [sys.executable, "-m", "mx_align.engine.commands.align", tmp_path / "pairs"]
    line += ["-m", bundle, "-o", home / "links"]
    subprocess.run(line, env=environment, check=True, timeout=120, capture_output=True)
    assert [path.name for path in home.rglob("*")] == ["links"]
