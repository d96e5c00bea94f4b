"""Algorithms as classes, to read and to begin with."""
