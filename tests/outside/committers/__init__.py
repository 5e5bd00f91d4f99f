"""Jobs of Spark through each committer whose driver is killed: what is seen, before and after the
job runs again."""
