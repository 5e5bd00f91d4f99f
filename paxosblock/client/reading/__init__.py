"""Files being read: their length, their blocks, and the replicas that have the bytes."""
