"""Decides for a running sendbox or agent: ``python3 -m forebay.live FILE``, which ``forebay keep-python`` starts.

Standard input is a socket of JSON datagrams. The first datagram, from this process, lists the algorithms in FILE or has an
error. Each datagram to this process is a call of a callback for a connection or bundle. The answer has the limits, or null
to keep the current limits. After an exception the answer has its traceback, and the connection gets no more answers.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback
from types import SimpleNamespace
from typing import Any

from forebay._forebay import Limits
from forebay.algorithms import defined, refresh

_DATAGRAM_MAX = 65_536
#: Characters at the end of a traceback that are sent. With escapes they fit into a datagram.
_TRACEBACK_MAX = 8_000
#: Replaces infinite limits, which JSON does not have. Larger than any window or rate.
_LIMIT_MAX = 2.0**63


class Connections:
    """The instances of this process, one per connection."""

    def __init__(self) -> None:
        self._instances: dict[int, Any] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a call; None if the call has no answer."""
        if question["call"] == "end":
            for connection in question["connections"]:
                self._instances.pop(connection, None)
            return None
        connection = question["connection"]
        if question["call"] != "init" and connection not in self._instances:
            # The instance failed, or belonged to a child process that has ended.
            return None
        answer = {"connection": connection, "number": question["number"]}
        try:
            # An invalid answer raises an exception here, not in the daemon.
            limits = _numbers(self._call(connection, question))
        except (Exception, SystemExit):
            self._instances.pop(connection, None)
            return {**answer, "limits": None, "failed": _traceback()}
        return {**answer, "limits": limits}

    def _call(self, connection: int, question: dict[str, Any]) -> Any:
        now_ns, told = question["now_ns"], question["told"]
        if question["call"] == "init":
            cls, _ = defined[told["algorithm"]]
            self._instances[connection] = cls(**told.get("params", {}))
            return self._instances[connection].init(SimpleNamespace(**told["start"]))
        if question["call"] == "on_measurement":
            measurement = SimpleNamespace(**told)
            return self._instances[connection].on_measurement(now_ns, measurement)
        return self._instances[connection].on_event(now_ns, told["event"], told["value"])


def _numbers(answered: Any) -> list[float | None] | None:
    """The return value of a callback as numbers."""
    if answered is None:
        return None
    if not isinstance(answered, Limits):
        raise TypeError(f"answered {answered!r}: allowed is forebay.Limits, or None")
    limits = (answered.cwnd_bytes, answered.ssthresh_bytes, answered.pacing_rate_bits_per_s)
    numbers = [None if number is None else min(number, _LIMIT_MAX) for number in limits]
    if not all(number is None or number >= 0 for number in numbers):
        raise ValueError(f"answered {answered!r}: allowed are limits of 0 or more")
    return numbers


def _traceback() -> str:
    return traceback.format_exc()[-_TRACEBACK_MAX:]


def serve(channel: socket.socket) -> None:
    """Answers until the other end is closed."""
    refresh(lambda: defined)
    said = ("name", "summary", "needs", "every", "limit_s", "params", "sources")
    entries = [{key: entry[key] for key in said} for _, entry in defined.values()]
    channel.send(json.dumps({"algorithms": entries}).encode())
    connections = Connections()
    while question := channel.recv(_DATAGRAM_MAX):
        answer = connections.answer(json.loads(question))
        if answer is not None:
            channel.send(json.dumps(answer).encode())


def main() -> None:
    """Runs the file of the first argument, and decides with its algorithms."""
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m forebay.live FILE, with a socket as standard input")
    # A duplicate: code in FILE that reads standard input gets no questions.
    channel = socket.socket(fileno=os.dup(0))
    try:
        runpy.run_path(sys.argv[1])
        if not defined:
            raise LookupError("no class in it is a forebay.algorithm")
    except (Exception, SystemExit):
        channel.send(json.dumps({"error": _traceback()}).encode())
        sys.exit(1)
    serve(channel)


if __name__ == "__main__":
    main()
