"""Lines of `paxosblock fs` beside those of Hadoop's FsShell and SnapshotDiffReport."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paxosblock import Client
from paxosblock.host.user import claimed_user
from tests.gateway.gateways import RunningGateway
from tests.spark.test_webhdfs import Shell, fs, gateway, home, our_shell, shell, shell_at

__all__ = ["fs", "gateway", "home", "our_shell", "shell"]
pytestmark = pytest.mark.plain("its subject is the wire of WebHDFS, and a gateway speaks no TLS")

SHOWN = (
    "-count -q -v -h {d} {d}/a {d}/full",
    "-count -q -v {d} {d}/a {d}/full {d}/none",
    "-count -u -v -h {d} {d}/full",
    "-count -v -x {d}",
    "-count -q -x {d}",
    "-count -u -x -v {d}",
    "-count -q -t -v {d}",
    "-count -q -t DISK -v {d}",
    "-count -q -t disk,ssd -v -h {d} {d}/full",
    "-count -q -t ALL {d}",
    "-count -u -t '' -v {d}/a",
    "-count -q -t DISK,,, -v {d}",
    "-count -q -t nvdimm,provided,ram_disk,archive -v {d}",
    "-count -t DISK -v {d}",
    "-count -t none {d}",
    "-count -e -v {d} {d}/a",
    "-count -q -e -h {d}/a",
    "-count -u -e -v {d}/a",
    "-count -q -t SSD -e -v {d}/a",
    "-du -v {d}",
    "-du -s -h -x {d}",
    "-du {d}/none",
    "-ls -C {d}",
    "-ls -h {d}",
    "-ls -d {d}",
    "-ls -R {d}",
    "-ls {d}/none",
    "-find {d} -name 'a*' -print",
    "-find {d} -iname A",
    "-find {d}/none",
    "-test -s {d}/a",
    "-test -z {d}/a",
    "-test -d {d}/none",
    "-stat '%A %a %F %b %n %o %r' {d}/a {d} {d}/none",
    "-text {d}/a",
    "-cat {d}/a {d}",
    "-head {d}/a",
    "-head {d}",
    "-tail {d}/a",
    "-checksum {d}/none {d}",
    "-getfattr -d {d}/none",
)
"""Looks at a directory. A path that is none is shown by both as such."""
CHANGED = (
    "-touchz {d}/z",
    "-touchz {d}/z {d}/a",
    "-touch -c {d}/no",
    "-touch -t 20240102:030405 {d}/a",
    "-touch -c -t 20240102:030405 {d}/no",
    "-touch -m -t 20240102:030406 {d}/new",
    "-touchz {d}",
    "-rmdir {d} {d}/a {d}/no",
    "-rmdir --ignore-fail-on-non-empty {d}",
    "-setrep 2 {d}/a",
    "-setrep 1 {d}",
    "-setfattr -n user.x {d}/a",
    "-getfattr -n user.x {d}/a",
    "-mkdir {d}/x/y",
    "-mkdir -p {d}/x/y",
    "-stat '%n %y %o %r' {d}/a {d}/z {d}/new",
    "-ls -C -t {d}",
    "-ls -q {d}",
    "-cat -ignoreCrc {d}/a",
    "-ls -C -S -r {d}",
    "-rm {d}/new",
    "-put {l}/one {d}/p",
    "-put {l}/one {d}/p",
    "-put {l}/none {d}/p2",
    "-put -f {l}/two {d}/p",
    "-put {l}/one {l}/two {d}/full",
    "-copyFromLocal -f {l}/one {l}/two {d}",
    "-cat {d}/one {d}/two {d}/p",
    "-appendToFile {l}/two {d}/one",
    "-cat {d}/one",
    "-cp {d}/one {d}/copy",
    "-cp -f {d}/two {d}/copy",
    "-cp {d}/no {d}/copy2",
    "-mv {d}/copy {d}/renamed",
    "-mv {d}/no {d}/renamed2",
    "-getmerge -nl {d}/one {d}/two {l}/merged",
    "-getmerge {d}/no {l}/merged",
    "-get {d}/one {l}/got",
    "-get {d}/one {l}/got",
    "-get -f {d}/two {l}/got",
    "-get {d}/no {l}/got2",
    "-moveFromLocal {l}/got {d}/moved",
    "-concat {d}/one {d}/two {d}/renamed",
    "-cat {d}/one",
    "-cat {d}/two",
    "-truncate 4 {d}/one",
    "-truncate -w 3 {d}/one",
    "-cat {d}/one",
    "-checksum {d}/one",
    "-setfattr -x user.x {d}/a",
    "-getfattr -d {d}/a",
    "-appendToFile -n {l}/two {d}/one",
    "-cat {d}/one",
    "-find {d} -name '?ne'",
    "-du {d}/one",
    "-ls -C -R {d}",
    "-rm {d}/no",
    "-rm {d}/a",
    "-rm -f {d}/no",
    "-rm -r -skipTrash {d}/x",
    "-chmod u+x {d}/no",
    "-chown a:b {d}/no",
    "-chgrp g {d}/no",
    "-createSnapshot {d} one",
    "-renameSnapshot {d} one two",
    "-deleteSnapshot {d} two",
)


def like_ours(told: str, gateway: RunningGateway) -> str:
    """Words of Hadoop's shell with our quotes, small letters, and no address before a path."""
    return told.replace(f"webhdfs://{gateway.address}", "").replace("`", "'").lower()


def said(shell: Shell, line: str, folder: str, local: Path) -> tuple[int, str]:
    """The exit code of a line about one directory, and its words without that directory's name."""
    here = local / folder[-1]
    code, words = shell(line.format(d=folder, l=here))
    return code, words.replace(folder, "/D").replace(str(here), "/L")


def filled(fs: Client, folder: str) -> None:
    """A directory with files, one of which is more than its quota lets in."""
    fs.mkdirs(f"{folder}/full")
    for name, size in (("a", 3000), ("full/b", 2_000_000)):
        with fs.create(f"{folder}/{name}") as out:
            out.write(b"x" * size)
    fs.set_quota(folder, names=100_000, space=30 << 30)
    fs.set_quota(f"{folder}/full", names=1, space=1 << 20)


def test_lines_of_verbs_are_those_of_the_shell_of_hadoop(
    shell: Shell,
    our_shell: Shell,
    *,
    gateway: RunningGateway,
    fs: Client,
    home: str,
    tmp_path: Path,
) -> None:
    """Each line in Hadoop's shell on one directory, and in ours on another one that is alike; both
    begin with the same local files."""
    theirs, ours = f"{home}/t", f"{home}/o"
    for folder in (theirs, ours):
        filled(fs, folder)
        local = tmp_path / folder[-1]
        local.mkdir()
        (local / "one").write_bytes(b"first\n")
        (local / "two").write_bytes(b"second\n")
    wrong = []
    for line in (*SHOWN, *CHANGED):
        where = theirs if line in CHANGED else ours
        code, told = said(shell, line, where, tmp_path)
        our_code, our_words = said(our_shell, line, ours, tmp_path)
        wanted, words = like_ours(told, gateway), our_words.lower()
        # Behind a refusal we may say what helps: "(replace it with -f)".
        alike = words.startswith(wanted.rstrip()) if code else words == wanted
        if our_code != code or not alike:
            wrong.append((line, code, wanted, our_code, our_words))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_comparison_of_snapshots_is_that_of_hadoop(
    spark: SparkSession, our_shell: Shell, gateway: RunningGateway, fs: Client, home: str
) -> None:
    """`hdfs snapshotDiff` prints SnapshotDiffReport.toString() as a line."""
    for name in ("keep/a", "keep/changed", "gone/b", "moved/c"):
        with fs.create(f"{home}/{name}") as out:
            out.write(b"1")
    fs.create_snapshot(home, "one")
    with fs.append(f"{home}/keep/changed") as out:
        out.write(b"2")
    fs.rename(f"{home}/moved/c", f"{home}/keep/d")
    fs.rename(f"{home}/keep/a", f"{home}/keep/e")
    fs.delete(f"{home}/gone", recursive=True)
    fs.mkdirs(f"{home}/new/below")
    fs.create_snapshot(home, "two")
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"webhdfs://{gateway.address}{home}")
    system = path.getFileSystem(jvm.org.apache.hadoop.conf.Configuration())
    for before, later in (("one", "two"), ("two", "one"), ("one", ""), ("two", "")):
        theirs = str(system.getSnapshotDiffReport(path, before, later).toString())
        told = our_shell(f"snapshotDiff {home} {before} {later or '.'}")
        assert told == (0, f"{theirs}\n")
    fs.delete_snapshot(home, "one")
    fs.delete_snapshot(home, "two")


def test_df_shows_the_room_as_the_shell_of_hadoop_does(shell: Shell, our_shell: Shell) -> None:
    """But for the address, which is the gateway's there: the heads, size and what others left may
    change meanwhile."""
    for line in ("-df /", "-df -h /"):
        (code, told), (our_code, our_words) = shell(line), our_shell(line)
        heads, room = (row.split() for row in told.splitlines())
        our_heads, our_room = (row.split() for row in our_words.splitlines())
        assert (our_code, our_heads, len(our_room)) == (code, heads, len(room))
        units = 3 if "-h" in line else 1
        assert our_room[1:units] == room[1:units]
    (code, told), (our_code, our_words) = shell("-df /none"), our_shell("-df /none")
    assert (our_code, our_words.lower()) == (code, told.replace("`", "'").lower())


NOT_TAKEN = {
    "count": {"-s"},
    "expunge": {"-fs"},
    "ls": {"-e", "-u"},
    "rm": {"-safely"},
}
"""Flags of Hadoop's shell that ours refuses: docs/departures.md says why."""


def test_usage_has_the_verbs_and_flags_of_the_shell_of_hadoop(
    shell: Shell, our_shell: Shell
) -> None:
    usages = re.findall(r"^\t\[-(\w+)(.*)\]$", shell("-usage")[1], re.MULTILINE)
    assert len(usages) > 40
    refused = {}
    for verb, theirs in usages:
        (code, ours), (help_code, text) = our_shell(f"-usage {verb}"), our_shell(f"-help {verb}")
        assert (code, help_code) == (0, 0)
        assert f"fs {verb} " in text
        letters = [f"-{each}" for each in re.sub(r".*-\[(\w+)\].*|.*", r"\1", theirs)]
        wanted = {*re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", theirs), *letters}
        if missing := wanted - set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", ours + text)):
            refused[verb] = missing
    assert refused == NOT_TAKEN
    for line in ("-usage frob", "-help frob"):
        assert "Unknown command" in shell(line)[1]
        assert "Unknown command" in our_shell(line)[1]


def test_a_trash_is_filled_and_emptied_as_by_the_shell_of_hadoop(
    spark: SparkSession,
    our_shell: Shell,
    *,
    gateway: RunningGateway,
    fs: Client,
    home: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each shell deletes a file of the same name twice, and makes a checkpoint of the trash. What
    Hadoop's says of it goes to its log."""
    settings = {"fs.defaultFS": f"webhdfs://{gateway.address}", "fs.trash.interval": "60"}
    theirs = shell_at(spark, settings)
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_TRASH_INTERVAL", "60min")
    trash = f"/user/{claimed_user()}/.Trash"
    told = []
    for run in (theirs, our_shell):
        lines = []
        for line in (f"-rm {home}/a", f"-rm {home}/a", f"-rm -skipTrash {home}/b", "-expunge"):
            for name in "ab":
                fs.create(f"{home}/{name}", overwrite=True).close()
            code, words = run(line)
            lines.append((code, like_ours(words, gateway) if "skip" in line else ""))
        found = [entry.path.removeprefix(trash) for entry in fs.walk(trash)]
        told.append((lines, [re.sub(r"\d{12,13}", "TIME", path) for path in found]))
        fs.delete(trash, recursive=True)
    assert told[0] == told[1]
