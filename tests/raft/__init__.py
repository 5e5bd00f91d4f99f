"""Tests of the replicated engine: a simulation in virtual time, and a test for each defect."""
