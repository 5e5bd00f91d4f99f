"""The benchmarks: `paxosblock bench`, in a checkout.

A *case* asks one question, in rounds. Each answer is a `Record`, a line of JSON with everything
needed to compare it: the machine, versions and settings, the bare limit of the same round and the
processor time used. `paxosblock bench report` makes tables and plots of records.

    record.py    writes and reads records
    suite.py     registers and runs cases, and gives each its means (`Bench`)
    catalog.py   lists the modules with cases
    host.py      the machine: its parts, its quiet disk, the processor time of processes
    stats.py     percentiles
    limit.py     the data path's task with bare sockets
    reporting.py, plot.py   tables and pictures of records
    command.py   the command
    cases/       the cases
    peers/       systems that do the same work, fetched, started and measured beside ours
    results/     records that are kept, and report/ the tables and pictures of them

`catalog.py` must name the module of a new case; `cases/calls.py` is an example.
"""
