"""Tests of the benchmarks themselves: not of how fast anything is."""
