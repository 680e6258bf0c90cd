"""Decisions over HTTP: the System One API in front of the queue."""
