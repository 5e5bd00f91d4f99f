"""Whole files and directories on their way: from this machine, to it, and within the cluster."""
