"""What a user can get wrong, as exceptions.

The message is one line: what was wanted, what was found, where, and what to do. Commands print it
without a traceback and exit with code 2.
"""


class MxError(Exception):
    """A mistake in the input, the files or the machine's set-up; the message is for the user."""


class InputError(MxError):
    """Text, gold or link files that cannot be read as what they should be."""


class BundleError(MxError):
    """A model bundle that is damaged, unsafe or of another version."""


class BackendError(MxError):
    """A requested backend that cannot run here."""
