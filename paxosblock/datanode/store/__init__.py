"""The store of a volume: replicas as files and as records of a shared log (FORMAT.md)."""
