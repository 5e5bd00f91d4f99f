"""Tests of paxosblock.base."""
