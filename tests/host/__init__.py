"""Tests of paxosblock.host."""
