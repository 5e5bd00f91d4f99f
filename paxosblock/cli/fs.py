"""`paxosblock fs`: files, with the verbs and flags of `hdfs dfs`."""

from __future__ import annotations

from paxosblock.cli.group import CommandEntry, DashGroup, common_options

_NAMES = "paxosblock.cli.fs_names"
_BYTES = "paxosblock.cli.fs_bytes"
_OWNERS = "paxosblock.cli.fs_owners"
_ATTRIBUTES = "paxosblock.cli.fs_attributes"
_ACLS = "paxosblock.cli.fs_acls"
_COPY = "paxosblock.cli.fs_copy"
_HELP = "paxosblock.cli.fs_help"
_SNAPSHOTS = "paxosblock.cli.fs_snapshots"
_SUMS = "paxosblock.cli.fs_sums"
_SYNC = "paxosblock.cli.fs_sync"
_TRASH = "paxosblock.cli.fs_trash"
_TOUCH = "paxosblock.cli.fs_touch"

fs = DashGroup(
    "fs",
    params=common_options(),
    short_help="Files, with the verbs and flags of `hdfs dfs`.",
    help="""Files, with the verbs, flags and output of `hdfs dfs`.

\b
  paxosblock fs put access.log /logs/        # a verb may have a leading dash too: fs -put
  paxosblock fs ls -h /logs
  paxosblock fs tail -f /logs/access.log

A path that does not begin with / is one in your home, /user/NAME; a URL names its cluster:
paxosblock://host:9870/logs. A failure is one line on standard error,
"ls: '/x': no such file or directory", and exit code 1.
""",
    elsewhere={"lsr": "ls -R", "rmr": "rm -r", "dus": "du -s", "delete": "rm", "copy": "cp"},
    entries={
        "ls": CommandEntry(_NAMES, "List a directory."),
        "mkdir": CommandEntry(_NAMES, "Make directories."),
        "cp": CommandEntry(_COPY, "Copy files and directories within the cluster."),
        "checksum": CommandEntry(_COPY, "Show checksums, as HDFS has them."),
        "rm": CommandEntry(_TRASH, "Delete files and directories."),
        "expunge": CommandEntry(_TRASH, "Empty the trash of what is old enough."),
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
        "getfacl": CommandEntry(_ACLS, "Show access control lists."),
        "setfacl": CommandEntry(_ACLS, "Change access control lists."),
        "stat": CommandEntry(_NAMES, "Show facts about a file or directory."),
        "du": CommandEntry(_SUMS, "Show how many bytes files have, and their replicas."),
        "df": CommandEntry(_SUMS, "Show the room of the cluster."),
        "count": CommandEntry(_SUMS, "Count directories, files and bytes."),
        "find": CommandEntry(_SUMS, "Find files and directories by name."),
        "test": CommandEntry(_TOUCH, "Ask about a path; the exit code answers."),
        "touch": CommandEntry(_TOUCH, "Set the time of a change; make missing files."),
        "touchz": CommandEntry(_TOUCH, "Make empty files."),
        "rmdir": CommandEntry(_TOUCH, "Delete empty directories."),
        "put": CommandEntry(_BYTES, "Copy local files into the cluster."),
        "copyFromLocal": CommandEntry(_BYTES, "The same as put.", "put"),
        "append": CommandEntry(_BYTES, "Add local files to the end of a file."),
        "appendToFile": CommandEntry(_BYTES, "The same as append.", "append"),
        "truncate": CommandEntry(_BYTES, "Cut files to a length."),
        "get": CommandEntry(_BYTES, "Copy files from the cluster to this machine."),
        "sync": CommandEntry(_SYNC, "Copy what differs, from here or to here."),
        "moveFromLocal": CommandEntry(_BYTES, "Put files into the cluster, and delete them here."),
        "moveToLocal": CommandEntry(_BYTES, "Not implemented, as in hdfs."),
        "copyToLocal": CommandEntry(_BYTES, "The same as get.", "get"),
        "cat": CommandEntry(_BYTES, "Write files to standard output."),
        "text": CommandEntry(_BYTES, "Write files to standard output, unpacked."),
        "getmerge": CommandEntry(_BYTES, "Copy files into one local file."),
        "head": CommandEntry(_BYTES, "Write the first kilobyte of a file."),
        "tail": CommandEntry(_BYTES, "Write the last kilobyte of a file, and follow it with -f."),
        "watch": CommandEntry("paxosblock.cli.fs_watch", "Show changes of names as they are made."),
        "snapshot": CommandEntry(_SNAPSHOTS, "Keep what is in a directory, to be read later."),
        "createSnapshot": CommandEntry(_SNAPSHOTS, "Take a snapshot of a directory.", "create"),
        "deleteSnapshot": CommandEntry(_SNAPSHOTS, "Delete a snapshot.", "delete"),
        "renameSnapshot": CommandEntry(_SNAPSHOTS, "Give a snapshot another name.", "rename"),
        "snapshotDiff": CommandEntry(_SNAPSHOTS, "Show what differs between snapshots.", "diff"),
        "undelete": CommandEntry(_SNAPSHOTS, "Bring back what was removed."),
        "usage": CommandEntry(_HELP, "Show the options and arguments of verbs."),
        "help": CommandEntry(_HELP, "Show what verbs do."),
    },
)
