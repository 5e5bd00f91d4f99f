"""The machine a node runs on: its disk, descriptors, processes, event loop, and logs."""
