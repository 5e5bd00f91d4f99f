"""Tests of the client: against the shipped nodes behind proxies that fail, and real processes."""
