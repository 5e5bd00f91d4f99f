"""The disks of tests: a simulated one, and the words for what goes wrong with any."""
