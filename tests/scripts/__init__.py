"""Races told as text."""
