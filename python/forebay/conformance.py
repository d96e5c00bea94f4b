"""Tests a class against the rules of every algorithm of forebay.

======================================  ==========================================================================
``keeps_a_valid_window``                Any measurements and events, with any field unknown, cause no exception, and the
                                        window is at least a segment
``keeps_a_sendbox_within_its_bounds``   The same in a sendbox, for any reports of the receivebox
``is_batch_invariant``                  With a measurement per packet, per 10 ms or per round trip the mean window differs
                                        by at most a fifth, with all fields unknown that the class does not need
``refuses_unknown_parameters``          The class refuses a parameter that it does not have
======================================  ==========================================================================

``pytest --forebay FILE`` tests all algorithms of a file. ``check`` tests one algorithm, for example in your own tests.
Measurements and events are drawn at random in each call. If a class breaks a rule, you get the shortest sequence found.
"""

from __future__ import annotations

from forebay import _forebay

#: Names of the rules.
RULES: tuple[str, ...] = tuple(_forebay.rules())


def check(algorithm: str, rule: str | None = None) -> None:
    """Tests an algorithm in Python; takes about a second per rule.

    Args:
        algorithm: The name of the algorithm, as given to ``forebay.algorithm``.
        rule: One of ``RULES``; None for all.

    Raises:
        AssertionError: The class breaks a rule. The message has the shortest sequence of calls found that breaks it.
        InputError: There is no such algorithm or rule, or the class did not return ``Limits``.
        Exception: The exception of the class, with that sequence as a note.
    """
    for name in RULES if rule is None else (rule,):
        broken = _forebay.conform(algorithm, name)
        if broken is not None:
            raise AssertionError(f"{algorithm}: {name}: {broken}")
