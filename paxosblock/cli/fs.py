"""`paxosblock fs`: files, with the verbs and flags of `hdfs dfs`."""

from __future__ import annotations

from paxosblock.cli.group import DashGroup, Entry

_NAMES = "paxosblock.cli.fs_names"
_BYTES = "paxosblock.cli.fs_bytes"

fs = DashGroup(
    "fs",
    short_help="Files, with the verbs and flags of `hdfs dfs`.",
    help="""Files, with the verbs, flags and output of `hdfs dfs`.

\b
  paxosblock fs put access.log /logs/        # a verb may have a leading dash too: fs -put
  paxosblock fs ls -h /logs
  paxosblock fs tail -f /logs/access.log

Paths are absolute, or URLs that name their cluster: paxosblock://host:9870/logs. A failure is
one line on standard error, "ls: '/x': no such file or directory", and exit code 1.
""",
    elsewhere={
        "copyFromLocal": "put",
        "moveFromLocal": "put",
        "copyToLocal": "get",
        "moveToLocal": "get",
        "appendToFile": "append",
        "df": "admin report",
        "lsr": "ls -R",
        "rmr": "rm -r",
        "rmdir": "rm -r",
        "text": "cat",
    },
    entries={
        "ls": Entry(_NAMES, "List a directory."),
        "mkdir": Entry(_NAMES, "Make directories."),
        "rm": Entry(_NAMES, "Delete files and directories."),
        "mv": Entry(_NAMES, "Rename or move."),
        "concat": Entry(_NAMES, "Join files without copying a byte."),
        "recover-lease": Entry("paxosblock.cli.lease", "End the writing of a file."),
        "setrep": Entry("paxosblock.cli.replication", "Change how many replicas files have."),
        "stat": Entry(_NAMES, "Show facts about a file or directory."),
        "put": Entry(_BYTES, "Copy local files into the cluster."),
        "append": Entry(_BYTES, "Add local files to the end of a file."),
        "truncate": Entry(_BYTES, "Cut files to a length."),
        "get": Entry(_BYTES, "Copy files from the cluster to this machine."),
        "cat": Entry(_BYTES, "Write files to standard output."),
        "head": Entry(_BYTES, "Write the first kilobyte of a file."),
        "tail": Entry(_BYTES, "Write the last kilobyte of a file, and follow it with -f."),
    },
)
