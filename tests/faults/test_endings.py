"""How programs end when something is in their way: one line, a documented code, no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ...engine.commands.flags import CommonFlags, FlagCommand
from ...engine.errors import MxError
from ..support.bundles import write_toy

RUN = [sys.executable, "-m", "mx_align.engine.commands.align"]


@pytest.fixture(scope="module")
def line(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("endings")
    (folder / "pairs").write_text("the cat ||| die Katze\n" * 50)
    return [*RUN, str(folder / "pairs"), "-m", str(write_toy(folder / "toy.mx").path), "-q"]


def end_with(capsys, error: BaseException, *flags: str) -> tuple[int, str]:
    """Let a command end with an error; return the exit code and what it said."""

    def fail(flags) -> None:
        raise error

    with pytest.raises(SystemExit) as stop:
        FlagCommand("mx-toy", CommonFlags, fail, help="").main([*flags])
    return int(stop.value.code or 0), capsys.readouterr().err


def test_an_internal_error_is_one_line_and_has_its_own_code(capsys):
    code, said = end_with(capsys, ZeroDivisionError("division by zero"))
    assert code == 70 and said.count("\n") == 1
    assert "internal error, ZeroDivisionError: division by zero. Please" in said
    code, said = end_with(capsys, ZeroDivisionError("division by zero"), "--debug")
    assert code == 70 and "Traceback" in said


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MxError("wrong"), 2, "wrong"),
        (MemoryError(), 2, "not enough memory"),
        (OSError(28, "No space left on device", "x"), 2, "cannot use x: No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_exit_codes(capsys, error, code, words):
    found, said = end_with(capsys, error)
    assert found == code and words in said and "Traceback" not in said


def test_messages_cannot_move_the_terminal(capsys):
    code, said = end_with(capsys, MxError("\x1b]0;owned\x07 \x9b2J \u202egnp.exe \r no"))
    assert code == 2 and "\\x1b]0;owned\\x07" in said and "\\u202egnp.exe" in said
    assert not set("\x1b\x07\x9b\u202e\r") & set(said)


def test_closed_streams_do_not_take_the_place_of_files(line, tmp_path):
    out = tmp_path / "links"
    shell = f'exec "$@" -o {out} 0<&- 1>&- 2>&-'
    assert subprocess.run(["bash", "-c", shell, "x", *line], timeout=120).returncode == 0
    assert out.read_text().count("\n") == 50
    for redirection, words in (("1>&-", b"cannot use a closed stream"), ("0<&-", b"cannot read")):
        source = line if "1" in redirection else [*RUN, "-", *line[4:]]
        shell = f'exec "$@" {redirection}'
        done = subprocess.run(["bash", "-c", shell, "x", *source], capture_output=True, timeout=120)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_standard_output(line):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 2 and b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_sigterm_is_143_and_leaves_nothing_but_what_goes_on(line, tmp_path):
    code = "import signal, time; from mx_align.engine.commands.flags import *\n"
    code += "from mx_align.engine.storage import atomic_write\n"
    code += f"def run(flags):\n  with atomic_write({str(tmp_path / 'out')!r}) as file:\n"
    code += "    print('ready', flush=True); time.sleep(60)\n"
    code += "FlagCommand('mx-toy', CommonFlags, run, help='').main()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and said == b"mx-toy: terminated; unfinished output is kept\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_targets_are_checked_before_anything_is_computed(line, tmp_path):
    tmp_path.chmod(0o500)
    done = subprocess.run([*line, "-o", tmp_path / "links"], capture_output=True, timeout=120)
    assert done.returncode == 2 and b"may not be written to by this user" in done.stderr
