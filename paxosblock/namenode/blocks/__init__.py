"""What happens to the replicas of blocks: recovery, finalization, reports, placement."""
