"""The DataNode: registers on real disks, real processes."""
