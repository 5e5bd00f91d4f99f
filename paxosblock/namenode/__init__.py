"""The NameNode: names, leases and generations of blocks; decides when a block is recovered."""
