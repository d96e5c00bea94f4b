"""The rules that every algorithm of forebay keeps, asked of a class.

======================================  ==========================================================================
``keeps_a_valid_window``                Whatever is measured and happens, with any field unknown: no exception, and a
                                        window of at least a segment
``keeps_a_sendbox_within_its_bounds``   The same in a sendbox, whatever the receivebox reports
``is_batch_invariant``                  Told of each packet, every 10 ms or once a round trip, the mean window differs by
                                        no more than a fifth, with all fields unknown that the class does not need
``refuses_unknown_parameters``          A parameter that the class does not have is refused
======================================  ==========================================================================

``pytest --forebay FILE`` asks them of all algorithms of a file, ``check`` of one in a test of one's own. What is measured
and happens is drawn anew each time; where a rule is broken, the shortest way to it is told.
"""

from __future__ import annotations

from forebay import _forebay

#: Names of the rules.
RULES: tuple[str, ...] = tuple(_forebay.rules())


def check(algorithm: str, rule: str | None = None) -> None:
    """Asks the rules of an algorithm in Python; takes about a second each.

    Args:
        algorithm: The name of the algorithm, as ``forebay.algorithm`` has been given it.
        rule: One of ``RULES``; None for all.

    Raises:
        AssertionError: A rule is broken; the message has the shortest sequence of calls found that breaks it.
        InputError: There is no such algorithm or rule, or the class answered what is no ``Limits``.
        Exception: Whatever the class raised, with that sequence as a note.
    """
    for name in RULES if rule is None else (rule,):
        broken = _forebay.conform(algorithm, name)
        if broken is not None:
            raise AssertionError(f"{algorithm}: {name}: {broken}")
