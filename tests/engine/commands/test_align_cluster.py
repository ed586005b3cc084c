"""What mx-align says about --ray before any cluster is needed."""

import builtins

import pytest
from click.testing import CliRunner

from ....engine.commands import align as cli
from ...support.bundles import write_toy


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.src").write_text("a b\n")
    return lambda *line: CliRunner().invoke(cli.main, list(line))


@pytest.mark.parametrize(
    ("line", "files", "address"),
    [(["--ray", "s", "t"], ["s", "t"], ""), (["s", "t", "--ray"], ["s", "t"], ""),
     (["--ray", "auto", "s"], ["s"], "auto"),
     (["s", "--ray=10.0.0.1:6379"], ["s"], "10.0.0.1:6379"),
     (["--ray", "head-1:6379", "s", "t"], ["s", "t"], "head-1:6379"),
     (["--ray", "ray://head:10001", "s"], ["s"], "ray://head:10001"),
     (["s", "t"], ["s", "t"], None)],
)  # fmt: skip
def test_an_address_or_none(line, files, address):
    values = cli.main.make_context("mx-align", list(line)).params
    assert values["ray"] == address
    assert [values[name] for name in ("src", "tgt") if values[name]] == files


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--ray"], "--ray needs -o FOLDER"),
     (["--ray", "-o", "out", "--scores", "x"], "--scores is not for --ray"),
     (["--ray", "-o", "out", "--shard", "1/2"], "--shard is for arrays of single machines"),
     (["--ray", "-o", "out", "--devices", "0"], "--devices is not for --ray"),
     (["--format", "parquet"], "--format parquet is for --ray only"),
     (["--actors", "2"], "--actors is for --ray only")],
)  # fmt: skip
def test_flags_that_do_not_fit(run, flags, message):
    result = run("c.src", "c.src", *flags)
    assert result.exit_code == 2 and message in result.stderr


def test_columns_are_two_names(run):
    for bad in ("src", "a,a", "a,b,c", ",b"):
        result = run("c.src", "--columns", bad)
        assert result.exit_code == 2 and "is not two names like src,tgt" in result.stderr


def test_without_ray_the_install_line_is_said(run, tmp_path, monkeypatch):
    model = write_toy(tmp_path / "toy.mx").path
    real = builtins.__import__

    def without(name, *arguments):
        if name.split(".")[0] == "ray":
            raise ImportError("No module named 'ray'")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("c.src", "c.src", "-m", str(model), "-o", "out", "--ray")
    assert result.exit_code == 2 and 'pip install "mx-align[ray]"' in result.stderr
