"""Example algorithms as classes, to read and to start from."""
