"""Real Spark on a real cluster: the data source, its sinks and its sources."""
