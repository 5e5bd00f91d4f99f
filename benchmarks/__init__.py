"""Benchmarks of the store alone, each run by `python -m benchmarks.NAME`.

All others are cases of `paxosblock bench`.
"""
