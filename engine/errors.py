"""What a user can get wrong, as exceptions.

The message is one line: what was wanted, what was found, where, and what to do. Commands print it
without a traceback and exit with code 2.
"""

import re

# What a terminal would obey or that turns text round: control characters but for line ends and
# tabs, and marks of direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean_text(text: str) -> str:
    """Return a text for people in which names of files and bundles cannot move their terminal."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class MxError(Exception):
    """A mistake in the input, the files or the machine's set-up; the message is for the user."""

    def __str__(self) -> str:
        return clean_text(super().__str__())


class InputError(MxError):
    """Text, gold or link files that cannot be read as what they should be."""


class BundleError(MxError):
    """A model bundle that is damaged, unsafe or of another version."""


class NoModelError(BundleError):
    """There is no model for some languages; statistics may align their text."""


class BackendError(MxError):
    """A requested backend that cannot run here."""
