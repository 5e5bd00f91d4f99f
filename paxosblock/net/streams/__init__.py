"""Data streams: chunks in both directions, and signs of life beside them."""
