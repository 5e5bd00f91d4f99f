"""Tests: protocol (pure), simulation, formats on disk, services (real processes)."""
