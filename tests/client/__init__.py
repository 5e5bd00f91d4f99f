"""Tests of the client: against memory nodes that fail on request, and real processes."""
