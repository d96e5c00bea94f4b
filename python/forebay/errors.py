"""Exceptions of the package."""


class Error(Exception):
    """Base class of all errors of forebay."""


class InputError(Error, ValueError):
    """An argument is wrong. The message says which values are allowed."""


class PlanError(InputError):
    """A plan, or a file that it names, is invalid. The message has a line for each error.

    The attributes describe the first error.

    Attributes:
        file: The file, the name of a built-in plan, ``--set`` for an override, or ``dict``.
        line: Line in the file, from 1; None for a dict and for an override.
        key: The dotted key; None if the error is about no single key.
        value: The value as written.
        allowed: The allowed values.
    """

    def __init__(
        self,
        message: str,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        value: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(message, file, line, key, value, allowed)
        self.file = file
        self.line = line
        self.key = key
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return str(self.args[0])


class RunError(Error, RuntimeError):
    """Something failed although the arguments are correct."""


class CallbackTimeout(RunError, TimeoutError):
    """A callback of a class took longer than ``limit_s`` of ``forebay.algorithm``.

    The message names the algorithm, its class, the flow or bundle, the callback and the simulated time. The run is not
    stored.
    """


class Interrupted(BaseException):
    """Ends a callback because its run was interrupted or because it takes too long. The caller gets the reason."""
