"""Nodes as processes on this machine."""
