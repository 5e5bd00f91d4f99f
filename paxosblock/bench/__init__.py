"""The benchmarks: `paxosblock bench`.

A *case* asks one question, in rounds. Each answer is a `Record`, a line of JSON that says all that
one must know to compare it: the machine, versions and settings, the bare limit of the same round
and the processor time that was used. `paxosblock bench report` makes tables and plots of records.

    record.py    the records, and how they are read back
    suite.py     what a case is, what it is given (`Bench`), and how cases are run
    catalog.py   the modules whose cases there are
    host.py      the machine: what it is, when its disk is quiet, what processes have used
    stats.py     percentiles
    limit.py     the data path's task with bare sockets
    report.py, plot.py   tables and pictures of records
    cases/       the cases
    peers/       systems that do the same work, fetched, started and asked beside ours

The module of a new case is named in `catalog.py`; `cases/calls.py` is an example of one.
"""
