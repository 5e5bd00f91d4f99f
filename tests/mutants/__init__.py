"""Faults that one might put into the product, and the tests that must notice each of them."""
