"""The whole promise in one run, on a throw-away cluster: `make demo`, or `paxosblock demo`."""
