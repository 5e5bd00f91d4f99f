"""The ways through the product: how many files and calls it takes to do one thing."""
