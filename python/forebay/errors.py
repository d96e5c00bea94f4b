"""What goes wrong."""


class Error(Exception):
    """Any error of forebay."""


class InputError(Error, ValueError):
    """An argument is wrong; the message says what is allowed."""


class PlanError(InputError):
    """A plan, or a file that it names, cannot be used: the message has a line for each error.

    The attributes are those of the first error.

    Attributes:
        file: The file, the name of a built-in plan, ``--set`` for an override, or ``dict``.
        line: Line in the file, from 1; None for a dict and for an override.
        key: The dotted key, where one is to blame.
        value: The value as written.
        allowed: What would be accepted.
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
    """Something went wrong that no argument is to blame for."""


class CallbackTimeout(RunError, TimeoutError):
    """A callback of a class takes longer than ``limit_s`` of ``forebay.algorithm`` allows.

    The message names the algorithm, its class, the flow or bundle, the callback and the simulated time. The run that it ends
    is not stored.
    """


class Interrupted(BaseException):
    """Ends a callback: somebody asked for the end of its run, or it takes too long. What calls it hears of the reason."""
