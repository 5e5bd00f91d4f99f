"""The `paxosblock` command: one file per family of verbs."""
