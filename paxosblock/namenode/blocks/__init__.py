"""Work on the replicas of blocks: recovery, finalization, reports, placement."""
