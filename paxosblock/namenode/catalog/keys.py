"""The keys of the catalog. One letter tells the kind; numbers are big-endian, so they sort.

::

    c                          the cluster: ClusterRecord
    n + name                   next number that was not reserved yet (8 bytes): "file", "block"
    e + directory + name       entry of a directory: kind and id of a file or directory (9 bytes);
                               if it was written again, the change that linked it (8 bytes more)
    i + id                     Inode: FileInode or DirectoryInode
    y + id + name              an attribute of a file or directory: its value
    t + directory              when an entry of the directory last changed (8 bytes, ms)
    f + file + sequence        Place: the file's block at that place, and where it begins
    b + block                  BlockEntry
    o + file                   the file is being written (empty value)
    u + block                  a block without a file that is not ended (empty value)
    g + id                     an Inode that was unlinked with something below it: to be swept
    a + application            Application: the last transaction that was applied for it
    s + session                Answered: the latest request of a client's session, and its answer
    r                          the catalog is of a backup, brought back at that time (8 bytes, ms)
    m                          an operator entered safe mode at that time (8 bytes, ms)
    d + name                   NodeRecord: a DataNode that is to leave, for good or for a while
    p + name                   ProcessRecord: the process that answers for a DataNode
    v + storage                the timeline that a storage is known in, once it had a snapshot
    k                          BlockKeys: the keys that capabilities are signed with
    l                          BlockKeys: the keys that tokens of users are signed with
    j + end + serial           TokenNote: a token that was issued, with the second of its end
    J + user + 0 + end + serial  a token of that user (empty value)
    Q + serial                 the second at which that token ends (8 bytes)
    q + serial                 the token was revoked (empty value)
    w                          the number of what DataNodes are told of tokens (8 bytes)
    h + block + generation     KeptVotes: the votes that the decision of that generation came from
    z + directory              Zone: the wrapped key of the encryption zone with this top
    U + directory + n + kind   a counter of names (kind 0) or of the room of replicas (1) of what is
                               at and below a directory (8 bytes); n is another one each time
    x + time + key             at that time (8 bytes, ms) what `key` holds ends (empty value)
    H                          how many snapshots there are, those that are being ended included
    S + directory + name       a snapshot of a directory: Snapshot (a hold of `kv/past.py`)
    I + key + entry            a before-image: what `key` held until that entry (`kv/past.py`)
    E + snapshot               a snapshot that ended; where the look for what only it showed goes on
    F + block + file + sequence  the block was at that place of a file, as a before-image has it
    G + file                   KeptFile: an unlinked file that has a block that a snapshot shows
    R                          the window of history: the first revision that it holds
    T + time                   at that time the map had the revision of this key (empty value)
    X + entry + id             an Inode that was unlinked, and that the window shows until it begins
                               behind that entry (empty value: its KeptFile has it)
    W + snapshot + file        the unlinked file waits for the end of that snapshot (empty value)
"""

from __future__ import annotations

import struct

from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.kv.interface import COUNTERS as _COUNTERS
from paxosblock.namenode.kv.interface import prefix_range
from paxosblock.namenode.kv.past import HOLD, HOLDS, IMAGE, WINDOW
from paxosblock.protocol.types import BlockId, Generation, StorageId

Range = tuple[bytes, bytes]

CLUSTER = b"c"
SAFE_MODE = b"m"
RESTORED = b"r"
BLOCK_KEYS = b"k"
TOKEN_KEYS = b"l"
TOKENS_AT = b"w"
FILE_COUNTER = b"nfile"
BLOCK_COUNTER = b"nblock"
ENTRIES: Range = prefix_range(b"e")
BLOCKS: Range = prefix_range(b"b")
OPEN_FILES: Range = prefix_range(b"o")
OPEN_BLOCKS: Range = prefix_range(b"u")
GARBAGE: Range = prefix_range(b"g")
NODES: Range = prefix_range(b"d")
PROCESSES: Range = prefix_range(b"p")
ZONES: Range = prefix_range(b"z")
DEADLINES: Range = prefix_range(b"x")
COUNTERS: Range = prefix_range(_COUNTERS)
NO_COUNTER = _COUNTERS
"""The key of a counter that there never is."""
TOKENS: Range = prefix_range(b"j")
KEPT_VOTES: Range = prefix_range(b"h")
REVOKED: Range = prefix_range(b"q")
SNAPSHOT_COUNT = HOLDS
SNAPSHOTS: Range = prefix_range(HOLD)
ENDED_SNAPSHOTS: Range = prefix_range(b"E")
IMAGES: Range = prefix_range(IMAGE)
HISTORY = WINDOW
HISTORY_TIMES: Range = prefix_range(b"T")
KEPT_FILES: Range = prefix_range(b"G")

_APPLICATION = b"a"
_SESSION = b"s"
_NODE = b"d"
_TIMELINE = b"v"
_PROCESS = b"p"
_NUMBER = struct.Struct(">Q")
_SEQUENCE = struct.Struct(">I")
PLACE_MAX = (1 << 32) - 1
_KEY = struct.Struct(">cQ")


def _key(letter: bytes, number: int) -> bytes:
    try:
        return _KEY.pack(letter, number)
    except struct.error:
        raise InvalidRequestError(f"{number} is not an id") from None


def pack_number(number: int) -> bytes:
    """Encode an id or a time as a value."""
    return _NUMBER.pack(number)


def unpack_number(value: bytes) -> int:
    """Decode what `pack_number` made."""
    number: int = _NUMBER.unpack(value)[0]
    return number


def entry(directory: int, name: str) -> bytes:
    """Key of the entry `name` of a directory that is known to exist."""
    return _KEY.pack(b"e", directory) + name.encode()


def entries(directory: int, after: str = "") -> Range:
    """Range of the entries of a directory whose names are greater than `after`."""
    start, end = prefix_range(_key(b"e", directory))
    return (start + after.encode() + b"\0" if after else start), end


def entries_of_prefix(directory: int, start: str) -> Range:
    """Range of the entries of a directory whose names begin with `start`."""
    return prefix_range(entry(directory, start))


def name_in(key: bytes) -> str:
    """Name in the key of an entry, an attribute or a snapshot."""
    return key[_KEY.size :].decode()


def inode(number: int) -> bytes:
    """Key of a file's or directory's record."""
    return _key(b"i", number)


def attribute(number: int, name: str) -> bytes:
    """Key of an attribute of a file or directory that is known to exist."""
    return _KEY.pack(b"y", number) + name.encode()


def attributes(number: int) -> Range:
    """Range of the attributes of a file or directory."""
    return prefix_range(_key(b"y", number))


def touched(directory: int) -> bytes:
    """Key of the time at which an entry of a directory that is known to exist last changed."""
    return _KEY.pack(b"t", directory)


def place(file: int, sequence: int) -> bytes:
    """Key of the block at place `sequence` of a file."""
    return _key(b"f", file) + _SEQUENCE.pack(sequence)


def places(file: int, start: int = 0) -> Range:
    """Range of the blocks of a file from place `start` on."""
    return place(file, start), prefix_range(_key(b"f", file))[1]


def place_sequence(key: bytes) -> int:
    """Place in the key of a file's block."""
    sequence: int = _SEQUENCE.unpack_from(key, _KEY.size)[0]
    return sequence


def block(number: BlockId) -> bytes:
    """Key of a block's record."""
    return _key(b"b", number)


def open_file(file: int) -> bytes:
    """Key that says that a file is being written."""
    return _key(b"o", file)


def open_block(number: BlockId) -> bytes:
    """Key that says that a block without a file is not ended."""
    return _key(b"u", number)


def garbage(number: int) -> bytes:
    """Key of an unlinked file or directory that is still to be swept."""
    return _key(b"g", number)


def zone(directory: int) -> bytes:
    """Key of the encryption zone whose top is a directory."""
    return _key(b"z", directory)


def kept_votes(number: BlockId, generation: Generation) -> bytes:
    """Key of the votes that a decision about a block came from."""
    return _key(b"h", number) + _NUMBER.pack(generation)


def kept_votes_of(number: BlockId) -> Range:
    """Range of the votes that decisions about a block came from, in the order of generations."""
    return prefix_range(_key(b"h", number))


def name_counter(directory: int, number: int) -> bytes:
    """Key of the counter `number` of the names at and below a directory."""
    return _key(_COUNTERS, directory) + _NUMBER.pack(number) + b"\0"


def space_counter(directory: int, number: int) -> bytes:
    """Key of the counter `number` of the room of replicas below a directory."""
    return _key(_COUNTERS, directory) + _NUMBER.pack(number) + b"\1"


def deadline(time_ms: int, subject: bytes) -> bytes:
    """Key that says when what the key `subject` holds ends."""
    return _key(b"x", time_ms) + subject


def deadline_subject(key: bytes) -> bytes:
    """Key of what ends at a deadline."""
    return key[_KEY.size :]


def token(until_s: int, serial: int) -> bytes:
    """Key of what is known of a token that was issued."""
    return _key(b"j", until_s) + _NUMBER.pack(serial)


def token_of(user: str, until_s: int, serial: int) -> bytes:
    """Key that says that a token is of a user, whose name has no character 0."""
    return b"J" + user.encode() + b"\0" + _NUMBER.pack(until_s) + _NUMBER.pack(serial)


def tokens_of(user: str, after_s: int) -> Range:
    """Range of the tokens of a user that end after that second."""
    return token_of(user, after_s + 1, 0), prefix_range(b"J" + user.encode() + b"\0")[1]


def token_in(key: bytes) -> bytes:
    """Key of what is known of a token, by that which says whose it is."""
    return b"j" + key[-2 * _NUMBER.size :]


def token_end(serial: int) -> bytes:
    """Key of the second at which a token ends."""
    return _key(b"Q", serial)


def revoked_token(serial: int) -> bytes:
    """Key that says that a token was revoked."""
    return _key(b"q", serial)


def snapshot(directory: int, name: str) -> bytes:
    """Key of the snapshot of this name of a directory that is known to exist."""
    return _KEY.pack(HOLD, directory) + name.encode()


def snapshots(directory: int) -> Range:
    """Range of the snapshots of a directory."""
    return prefix_range(_key(HOLD, directory))


def ended_snapshot(number: int) -> bytes:
    """Key of a snapshot that ended."""
    return _key(b"E", number)


def former_place(block: BlockId, place: bytes) -> bytes:
    """Key that says that a block was at the place with this key."""
    return _key(b"F", block) + place[1:]


def former_places(block: BlockId) -> Range:
    """Range of the places at which a block was."""
    return prefix_range(_key(b"F", block))


def place_in(key: bytes) -> bytes:
    """Key of the place that the key of a former place names."""
    return b"f" + key[_KEY.size :]


def is_place(key: bytes) -> bool:
    """True if the key is that of a place of a file."""
    return key.startswith(b"f")


def kept_file(number: int) -> bytes:
    """Key of an unlinked file that has a block that a snapshot shows."""
    return _key(b"G", number)


def waiting(snapshot: int, file: int) -> bytes:
    """Key that says that an unlinked file waits for the end of a snapshot."""
    return _key(b"W", snapshot) + _NUMBER.pack(file)


def waiting_for(snapshot: int) -> Range:
    """Range of the unlinked files that wait for the end of a snapshot."""
    return prefix_range(_key(b"W", snapshot))


def waiting_until(entry: int, inode: int) -> bytes:
    """Key that says that something unlinked waits until the window begins behind an entry."""
    return _key(b"X", entry) + _NUMBER.pack(inode)


def waiting_to(entry: int) -> Range:
    """Range of what waits no longer once the window begins behind that entry."""
    return _key(b"X", 0), _key(b"X", entry + 1)


def history_time(time_ms: int) -> bytes:
    """Key that has the revision that the map had at a time."""
    return _key(b"T", time_ms)


def waiting_file(key: bytes) -> int:
    """File, or directory, that waits."""
    return unpack_number(key[_KEY.size :])


def application(app_id: str) -> bytes:
    """Key of what is known of the transactions of an application."""
    return _APPLICATION + app_id.encode()


def is_application(key: bytes) -> bool:
    """True if the key is that of an application."""
    return key.startswith(_APPLICATION)


def session(name: str) -> bytes:
    """Key of the latest request of a session."""
    return _SESSION + name.encode()


def timeline(storage: StorageId) -> bytes:
    """Key of the timeline that a storage is known in."""
    return _TIMELINE + storage.encode()


def process(node: str) -> bytes:
    """Key of the process that answers for a DataNode."""
    return _PROCESS + node.encode()


def is_session(key: bytes) -> bool:
    """True if the key is that of a session."""
    return key.startswith(_SESSION)


def node(name: str) -> bytes:
    """Key of what an operator said of a DataNode."""
    return _NODE + name.encode()


def is_node(key: bytes) -> bool:
    """True if the key is that of a DataNode."""
    return key.startswith(_NODE)


def node_name(key: bytes) -> str:
    """Return the name in the key of a DataNode, or of its process."""
    return key[len(_NODE) :].decode()


def number_of(key: bytes) -> int:
    """Id in a key of an inode, a block, an open file, a zone, a counter, a piece of garbage or a
    revoked token; the time of a deadline, or of a revision."""
    number: int = _KEY.unpack_from(key)[1]
    return number
