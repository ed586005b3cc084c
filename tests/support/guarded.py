"""Runs code in a process that cannot import some modules."""

import subprocess
import sys

GUARD = """
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name in BANNED or name.startswith(tuple(f"{b}." for b in BANNED)):
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Guard())
"""


def run_guarded(banned: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where importing the banned modules raises."""
    program = f"BANNED = {banned!r}\n{GUARD}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd="/"
    )
