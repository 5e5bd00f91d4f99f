"""Benchmarks: one module per question, each run by `python -m benchmarks.NAME`."""
