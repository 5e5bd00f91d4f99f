"""Jobs that Spark spreads over its executors: `fsck`, `distcp`, `compact`.

Each is one function with a Spark session as its first argument, or with what starts one: it is
called when the job is known to make sense and has something to do. The command line is
`paxosblock spark`. What the tasks do is plain code on `Client`, so it is tested without Spark, too.
"""
