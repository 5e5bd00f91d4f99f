"""Jobs that Spark spreads over its executors: `fsck`, `distcp`, `compact`.

Each is one function whose first argument is a Spark session, or a function that starts one, which
is called only once the job is known to make sense and to have something to do. The command line is
`paxosblock spark`. The tasks run plain code on `Client`, so it is tested without Spark, too.
"""
