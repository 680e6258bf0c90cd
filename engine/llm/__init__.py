"""The decision engine inside vLLM. Importing this package imports neither vLLM nor torch."""
