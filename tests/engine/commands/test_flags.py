"""Commands made of dataclasses: parsing, help by groups, limits, exit codes."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from ....engine.commands.flags import CommonFlags, FlagCommand, argument, flag
from ....engine.errors import MxError
from ....engine.options import check_limits, output_settings


def parse_even(text: str) -> int:
    if int(text) % 2:
        raise ValueError(f"{text} is odd")
    return int(text)


@dataclass(frozen=True)
class ToyFlags(CommonFlags):
    file: str = argument(required=True)
    others: tuple[str, ...] = argument(())
    colour: Literal["red", "blue"] = flag("red", "Of the toy.", group="Looks", changes_output=True)
    size: int = flag(3, "In inches.", group="Looks", short="-s", minimum=1, maximum=9)
    share: float | None = flag(None, "A part.", minimum=0, above=True)
    even: int = flag(2, "Not odd.", parse=parse_even)
    places: tuple[tuple[str, str], ...] = flag((), "From and to.", metavar="A B")
    resume: bool = flag(True, "Go on.", off="--restart")
    given: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToySettings:
    speed: float = flag(1.5, "Of the wheels.", group="Wheels")
    loud: bool = flag(True, "Squeak.", group="Wheels")


def invoke(*arguments: str, run=None, **more: Any):
    """Run a toy command; gives the result and the flags that it got."""
    seen: list[ToyFlags] = []

    def keep(flags: ToyFlags) -> int | None:
        seen.append(flags)
        return run(flags) if run else None

    command = FlagCommand("mx-toy", ToyFlags, keep, help="Play.", settings=(ToySettings,), **more)
    return CliRunner().invoke(command, list(arguments)), seen[0] if seen else None


def test_values_reach_the_fields():
    result, flags = invoke("f", "g", "h", "-s", "4", "--places", "a", "b", "--places", "c", "d")
    assert result.exit_code == 0
    assert flags == ToyFlags(
        file="f", others=("g", "h"), size=4, places=(("a", "b"), ("c", "d")), given={}
    )
    _, flags = invoke("f", "--even", "8", "--restart", "--no-loud", "--speed", "2", "-q")
    assert (flags.even, flags.resume, flags.quiet) == (8, False, True)
    assert flags.given == {"speed": 2.0, "loud": False}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["f", "--colour", "green"], "'green' is not one of 'red', 'blue'"),
        (["f", "--size", "10"], "10 is not in the range 1<=x<=9"),
        (["f", "--share", "0"], "0.0 is not in the range x>0"),
        (["f", "--even", "3"], "Invalid value for '--even': 3 is odd"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_values_that_cannot_be(arguments, message):
    result, flags = invoke(*arguments)
    assert result.exit_code == 2 and message in result.stderr and flags is None


def test_help_lists_flags_under_their_titles_with_their_defaults():
    text = invoke("-h", titles=("Wheels", "Looks"))[0].output
    places = ["Wheels:", "--speed", "Looks:", "--colour", "--size", "General:", "-q", "--help"]
    assert sorted(places, key=text.index) == places
    assert "Of the toy [default: red]." in text and "In inches [default: 3]." in text


def test_exit_codes_and_what_is_said():
    def fail(error):
        def run(flags):
            raise error

        return run

    result, _ = invoke("f", run=fail(MxError("the toy is broken")))
    assert (result.exit_code, result.stderr) == (2, "mx-toy: the toy is broken\n")
    result, _ = invoke("f", "--debug", run=fail(MxError("the toy is broken")))
    assert "Traceback" in result.stderr
    result, _ = invoke("f", run=fail(KeyboardInterrupt()), interrupted=lambda flags: "stopped")
    assert (result.exit_code, result.stderr) == (130, "mx-toy: stopped\n")
    assert invoke("f", run=lambda flags: 1)[0].exit_code == 1


def test_arguments_can_be_rewritten_and_flags_renamed():
    _, flags = invoke("f", "--small", rewrite=lambda line: [*line[:-1], "--size", "1"])
    assert flags.size == 1
    for typed in (["--paint"], ["--paint=x"]):
        result, flags = invoke("f", *typed, renamed={"--paint": "--colour"})
        assert (result.exit_code, result.stderr) == (2, "mx-toy: --paint is now --colour\n")
        assert flags is None
    assert invoke("--", "--paint", renamed={"--paint": "--colour"})[1].file == "--paint"


def test_what_a_resumed_run_must_repeat():
    assert output_settings(ToyFlags(colour="blue", size=5)) == {"colour": "blue"}


def test_values_from_python_have_the_same_limits():
    check_limits(ToyFlags(share=None, size=9))
    for wrong, message in [
        ({"colour": "green"}, "colour must be one of red, blue, not 'green'"),
        ({"size": 0}, "size must be at least 1"),
        ({"size": 10}, "size must be at most 9"),
        ({"share": 0.0}, "share must be above 0"),
        ({"places": "ab"}, "places must be a list, not the string 'ab'"),
    ]:
        with pytest.raises(MxError, match=message):
            check_limits(ToyFlags(**wrong))
