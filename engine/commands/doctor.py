"""mx-doctor: say which backends would run here, why not the others, and whether those that do
compute what they should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from .flags import CommonFlags, FlagCommand, flag

_HELP = """Say which backends of mx-align would run here and, for those that would not, why and what
to install. On a machine with a GPU, run the kernels against their references.

\b
Example:
  mx-doctor -m de-en.mx
"""


@dataclass(frozen=True)
class DoctorFlags(CommonFlags):
    """The flags of mx-doctor."""

    quiet: bool = flag(False, "Say nothing: only the exit code tells.", short="-q")
    model: str | None = flag(
        None, "Align with it on every backend, too.", short="-m", metavar="BUNDLE"
    )


def run_doctor(flags: DoctorFlags) -> int:
    """Examine the machine; 1 if something that runs here computes what it should not."""
    say = (lambda line: None) if flags.quiet else click.echo
    return 0 if examine_machine(flags.model, say) else 1


def examine_machine(model: str | None, say: Callable[[str], None]) -> bool:
    """Say everything; False if something that runs here computes what it should not."""
    from ..runtime import examination

    for line in [*examination.list_versions(), *examination.examine_backends()]:
        say(str(line))
    kernels_are_good = examination.check_own_kernels(say)
    if model is None:
        return kernels_are_good
    from ..aligner import Aligner
    from ..bundle.bundle import Bundle

    bundle = Bundle.load(model)
    return examination.check_backend_links(bundle, Aligner.load, say) and kernels_are_good


main = FlagCommand("mx-doctor", DoctorFlags, run_doctor, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-doctor")
