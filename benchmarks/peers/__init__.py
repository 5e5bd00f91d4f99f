"""Peers: systems that do the same work, run beside ours in the same run."""
