"""`paxosblock fs`: files, with the verbs and flags of `hdfs dfs`."""

from __future__ import annotations

from paxosblock.cli.group import CommandEntry, DashGroup, common_options

_NAMES = "paxosblock.cli.fs_names"
_BYTES = "paxosblock.cli.fs_bytes"
_OWNERS = "paxosblock.cli.fs_owners"
_ATTRIBUTES = "paxosblock.cli.fs_attributes"

fs = DashGroup(
    "fs",
    params=common_options(),
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
        "ls": CommandEntry(_NAMES, "List a directory."),
        "mkdir": CommandEntry(_NAMES, "Make directories."),
        "rm": CommandEntry(_NAMES, "Delete files and directories."),
        "mv": CommandEntry(_NAMES, "Rename or move."),
        "concat": CommandEntry(_NAMES, "Join files without copying a byte."),
        "recover-lease": CommandEntry("paxosblock.cli.lease", "End the writing of a file."),
        "setrep": CommandEntry(
            "paxosblock.cli.replication", "Change how many replicas files have."
        ),
        "chmod": CommandEntry(_OWNERS, "Change who may do what."),
        "chown": CommandEntry(_OWNERS, "Change owners and groups."),
        "chgrp": CommandEntry(_OWNERS, "Change groups."),
        "getfattr": CommandEntry(_ATTRIBUTES, "Show attributes."),
        "setfattr": CommandEntry(_ATTRIBUTES, "Set or remove an attribute."),
        "stat": CommandEntry(_NAMES, "Show facts about a file or directory."),
        "put": CommandEntry(_BYTES, "Copy local files into the cluster."),
        "append": CommandEntry(_BYTES, "Add local files to the end of a file."),
        "truncate": CommandEntry(_BYTES, "Cut files to a length."),
        "get": CommandEntry(_BYTES, "Copy files from the cluster to this machine."),
        "cat": CommandEntry(_BYTES, "Write files to standard output."),
        "head": CommandEntry(_BYTES, "Write the first kilobyte of a file."),
        "tail": CommandEntry(_BYTES, "Write the last kilobyte of a file, and follow it with -f."),
    },
)
