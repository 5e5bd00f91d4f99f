"""The cases by subject; `paxosblock bench --list` shows them."""
