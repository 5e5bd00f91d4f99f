"""The cases, by what they are about; `paxosblock bench --list` shows them."""
