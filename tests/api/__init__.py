"""Tests of paxosblock.api."""
