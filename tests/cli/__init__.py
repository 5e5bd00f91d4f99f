"""The `paxosblock` command."""
