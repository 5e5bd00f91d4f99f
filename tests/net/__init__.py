"""Tests of paxosblock.net."""
