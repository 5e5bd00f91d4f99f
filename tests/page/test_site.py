"""The pages of a node: what stands on them, escaped, in the order of its weight."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from paxosblock.api.care import (
    LEAVING,
    AdminState,
    AdminStatus,
    BalanceStatus,
    Balancing,
    HeldUp,
    HoldUp,
    Leaving,
    LeavingNode,
)
from paxosblock.api.file_pages import GET_FILE, FileView
from paxosblock.api.fsck_call import Condition, Finding
from paxosblock.api.insight import (
    DATANODE_STATUS,
    GATEWAY_STATUS,
    LIST_UNWHOLE,
    LIST_WRITERS,
    SHOW_SETTINGS,
    SHOW_WORK,
    ChangedSetting,
    DataNodeStatus,
    DoorStatus,
    GatewayStatus,
    ListUnwhole,
    NodeSettings,
    UnwholeBlocks,
    VolumeStatus,
    Work,
    WriterLease,
    Writers,
)
from paxosblock.api.methods import Method
from paxosblock.api.namenode import LIST, STAT, BlockMember, BlockView, Kind, Listing
from paxosblock.api.status import CLUSTER_STATUS, NAMENODE_STATUS, ClusterStatus, ReplicationStatus
from paxosblock.errors import (
    AccessDeniedError,
    NotFoundError,
    NotLeaderError,
    PermissionDeniedError,
)
from paxosblock.page.site import PageAnswer, Site
from paxosblock.page.views import ROWS
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, BlockState, Durability, Generation, StorageId
from paxosblock.protocol.types import WriterId as Writer
from tests.page.answers import A, Answers, Q, cluster, datanode, file, namenode, of_a_cluster

EVIL = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% raw %}",
    "line\nbreak\ttab",
    "esc\x1b[31m\x9b",
    "gpj.\u202eexe",
    "a&amp;b?c#d%2e",
    "\udcff",
)


def site_of(given: dict[str, object], **others: Any) -> Site:
    """The site of a NameNode that answers so."""
    return Site.of_namenode("nn", Answers(given, **others), "http")


async def text_of(site: Site, page: str, **query: str) -> str:
    """The text of a page that is there."""
    answer = await site.page(page, query, "me")
    assert answer.status == 200, answer.body.decode()
    return answer.body.decode()


class Tags(HTMLParser):
    """Notes every tag with its attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said += data


async def test_what_is_wrong_stands_above_all_else() -> None:
    site = site_of(of_a_cluster(datanode("a"), datanode("b", "dead")))
    page = await text_of(site, "/")
    heads = re.findall(r"<h[12][^>]*>([^<]*)<", page)
    assert heads == [
        "Health: dead node",
        "Numbers",
        "NameNodes",
        "DataNodes",
        "Alarms",
        "Blocks that are not whole",
        "Writers",
        "Settings that differ from the default",
        "What the cluster does by itself",
    ]


async def test_datanodes_in_trouble_stand_above_the_others_and_all_in_the_order_of_names() -> None:
    nodes = (datanode("c"), datanode("a"), datanode("d", "dead"), datanode("b", failed="it hangs"))
    follows = namenode(serves=False, leader="nn:1", datanodes=nodes, members=("nn:1",))
    of_follower: dict[str, object] = {NAMENODE_STATUS.name: follows}
    for given in (of_a_cluster(*nodes), of_follower):
        page = await text_of(site_of(given), "/")
        assert re.findall(r'<span class="mono whole">(\w):9871<', page) == ["b", "d", "a", "c"]


async def test_the_json_is_the_same_struct_and_has_all_of_a_cluster_status() -> None:
    site = site_of(of_a_cluster(datanode("a")))
    answer = await site.page("/page.json", {}, "me")
    told = json.loads(answer.body)
    assert answer.content_type == "application/json"
    assert set(ClusterStatus.__struct_fields__) <= told.keys()
    assert (told["health"]["level"], told["files"]) == ("healthy", 3)


async def test_work_says_when_it_will_be_done_at_the_pace_of_the_last_minute() -> None:
    balance = BalanceStatus("run", Balancing.MOVING, 1, 10, 1, 0, 3, 0.5, 0.2, 6000, "")
    leaving = LeavingNode(AdminStatus("b", "b:1", AdminState.DECOMMISSIONED), True, 50, 30)
    given = of_a_cluster(datanode("a"), datanode("b"))
    waits = ReplicationStatus(waiting=118, under_way=2)
    seen = cluster(datanode("a"), datanode("b"), replication=waits)
    given |= {CLUSTER_STATUS.name: seen, LEAVING.name: Leaving((leaving,))}
    work = Work((), 2, 9, 0, balance, made_per_s=0.5, bytes_per_s=100.0)
    shown = await text_of(site_of(given | {SHOW_WORK.name: work}), "/")
    for length in ("4 min", "1 min", "1 min"):
        assert f"; done in about {length} at the pace of the last minute" in shown
    assert shown.count("at the pace of the last minute") == 3
    still = msgspec.structs.replace(work, made_per_s=0.0, bytes_per_s=0.0)
    shown = await text_of(site_of(given | {SHOW_WORK.name: still}), "/")
    assert shown.count("; nothing was done in the last minute") == 3


async def test_a_datanode_that_leaves_is_called_gone_once_no_block_needs_it() -> None:
    """With what holds it up meanwhile."""
    lacks = HeldUp(BlockId(7), "/f", HoldUp.NO_ROOM, 1, 3)
    asked = AdminStatus("b", "b:1", AdminState.DECOMMISSIONED)
    given = of_a_cluster(datanode("a"), datanode("b"))
    leaves = LeavingNode(asked, True, blocks=50, waiting=30, others=1, held_up=(lacks,))
    shown = await text_of(site_of(given | {LEAVING.name: Leaving((leaves,))}), "/")
    assert ("live, decommissioning" in shown, "decommissioned" in shown) == (True, False)
    link, why = '<a href="/block?id=7">block 7</a>', "only 1 other DataNode live for replication 3"
    assert f"{link}: {why}, and others" in shown
    gone = msgspec.structs.replace(leaves, waiting=0, held_up=())
    shown = await text_of(site_of(given | {LEAVING.name: Leaving((gone,))}), "/")
    assert "live, decommissioned" in shown
    assert "b: decommissioned; no block needs it any more" in shown


async def test_room_is_ours_others_and_free() -> None:
    page = await text_of(site_of(of_a_cluster(datanode("a"))), "/")
    label = "25 G ours, 25 G others' or reserved, 50 G free of 100 G"
    assert f'aria-label="{label}"' in page


async def test_namenodes_that_do_not_answer_are_shown_and_do_not_keep_the_page() -> None:
    own = namenode(leader="nn:1", members=("nn:1", "nn:2", "nn:3"), lag={"nn:2": 0, "nn:3": 12})
    other = namenode(serves=False)
    site = site_of(of_a_cluster() | {NAMENODE_STATUS.name: own}, others={"nn:2": other})
    page = await text_of(site, "/")
    assert "NameNode nn:3 does not answer; 2 of 3 do" in page
    assert "12 entries" in page


async def test_a_follower_shows_what_it_knows_and_links_to_the_leader() -> None:
    own = namenode(serves=False, leader="nn:1", datanodes=(datanode("a"),), members=("nn:1",))
    refused = NotLeaderError("nn:1 does", leader="nn:1")
    given = {NAMENODE_STATUS.name: own, CLUSTER_STATUS.name: refused}
    page = await text_of(site_of(given), "/")
    assert '<a href="http://nn:1/">' in page
    assert "a:9871" in page


async def test_what_a_caller_may_not_see_is_withheld_with_the_reason() -> None:
    refused = PermissionDeniedError("user=me is no superuser")
    site = site_of(of_a_cluster() | {LIST_UNWHOLE.name: refused, LIST_WRITERS.name: refused})
    page = await text_of(site, "/")
    assert page.count("user=me is no superuser") == 2


async def test_blocks_are_listed_by_file() -> None:
    found = tuple(
        Finding(path, 1, Condition.MISSING, BlockId(number), 5, 3, 0)
        for number, path in enumerate(("/b", "/a", "/b"), start=1)
    )
    site = site_of(of_a_cluster() | {LIST_UNWHOLE.name: UnwholeBlocks(found, 9)})
    page = await text_of(site, "/")
    assert re.findall(r'rowspan="(\d)"', page) == ["2", "1"]
    assert "All of them: 9 blocks" in page


async def test_the_first_page_has_blocks_with_bytes_at_risk_before_all_others() -> None:
    lacking = tuple(
        Finding(f"/a{number}", 1, Condition.UNDER_REPLICATED, BlockId(number), 5, 3, 2)
        for number in range(1, ROWS + 9)
    )
    lost = Finding("/z", 2, Condition.MISSING, BlockId(999), 5, 3, 0)

    class OfTwoKinds(Answers):
        async def call(self, method: Method[Q, A], request: Q) -> A:
            if not isinstance(request, ListUnwhole):
                return await super().call(method, request)
            found = UnwholeBlocks((lost,) if request.worst else lacking[: request.limit], 30)
            assert isinstance(found, method.answer)
            return found

    site = Site.of_namenode("nn", OfTwoKinds(of_a_cluster()), "http")
    page = await text_of(site, "/")
    paths = re.findall(r'<a href="/files\?path=(/[^"]*)">/', page)
    assert paths == ["/z", *(f"/a{number}" for number in range(1, ROWS))]


async def test_a_page_that_only_the_leader_has_links_to_it_there() -> None:
    refused = NotLeaderError("nn:1 does", leader="nn:1")
    site = site_of({STAT.name: refused, LIST_WRITERS.name: refused})
    page = (await site.page("/files", {"path": '/a&"b', "after": "c"}, "me")).body.decode()
    assert '<a href="http://nn:1/files?path=%2Fa%26%22b&amp;after=c">' in page
    unknown = site_of({LIST_WRITERS.name: NotLeaderError("nobody does", leader="")})
    assert b"that leads" not in (await unknown.page("/writers", {}, "me")).body


async def test_a_writer_is_shown_with_user_age_and_files() -> None:
    lease = WriterLease(Writer("w1"), "ann", "10.0.0.7", 125.0, 61.0, 60.0, 7, ("/log/a",))
    site = site_of(of_a_cluster() | {LIST_WRITERS.name: Writers((lease,), 1)})
    said = Tags(await text_of(site, "/writers")).said
    assert "ann from 10.0.0.7" in said
    assert "2 min 5 s" in said
    assert "1 min 1 s ago, others may take over" in said
    assert "/log/a and 6 more" in said


@pytest.mark.parametrize("name", EVIL, ids=ascii)
async def test_a_name_is_text_whatever_is_in_it(name: str) -> None:
    plain = Tags(await text_of(site_of(_listed("plain")), "/files", path="/d")).found
    page = await text_of(site_of(_listed(name)), "/files", path="/d")
    tags = Tags(page).found
    assert [tag for tag, _ in tags] == [tag for tag, _ in plain]
    assert [attrs.keys() for _, attrs in tags] == [attrs.keys() for _, attrs in plain]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)


def _listed(name: str) -> dict[str, object]:
    entry = file("/d/x")
    msgspec.structs.force_setattr(entry, "path", f"/d/{name}")  # also what no NameNode would list
    msgspec.structs.force_setattr(entry, "owner", name)
    return {
        STAT.name: file("/d", Kind.DIRECTORY),
        LIST.name: Listing((entry,), more=True),
    }


@pytest.mark.parametrize("name", EVIL, ids=ascii)
async def test_settings_alarms_and_reasons_are_text(name: str) -> None:
    changed = NodeSettings("namenode", (ChangedSetting("racks", name, name),))
    given = of_a_cluster(datanode(name, failed=name)) | {
        SHOW_SETTINGS.name: changed,
        NAMENODE_STATUS.name: namenode(alarms=(name,), trouble=name, alarm_count=1),
    }
    tags = Tags(await text_of(site_of(given), "/")).found
    assert [tag for tag, _ in tags].count("script") == 1
    assert "img" not in [tag for tag, _ in tags]


async def test_a_file_shows_where_each_block_lies_and_no_capability() -> None:
    member = BlockMember(StorageId("s1"), "dn-1", "dn-1:9871", True, capability=b"secret!")
    record = BlockRecord(
        BlockId(7),
        BlockState.FINALIZED,
        Generation(1),
        Generation(0),
        (StorageId("s1"),),
        Writer("w"),
        4,
        Durability.DISK,
        finalized_generation=Generation(1),
        length=1,
        size_bytes=1234,
    )
    view = FileView(file("/f"), (BlockView(record, (member,)),))
    site = site_of({STAT.name: file("/f"), GET_FILE.name: view})
    page = await text_of(site, "/files", path="/f")
    assert 'href="http://dn-1:9871/">dn-1</a>' in page
    assert b"secret" not in (await site.page("/files.json", {"path": "/f"}, "me")).body
    assert "c2VjcmV0" not in page


@pytest.mark.parametrize("ending", ["", ".json"])
async def test_a_path_that_is_not_there_is_a_small_page_with_404(ending: str) -> None:
    site = site_of({STAT.name: NotFoundError("'/x\\x1b': no such file", path="/x\x1b")})
    answer: PageAnswer = await site.page(f"/files{ending}", {"path": "/x\x1b"}, "me")
    assert (answer.status, len(answer.body) < 2000) == (404, True)
    assert b"Traceback" not in answer.body
    assert b"no such file" in answer.body


@pytest.mark.parametrize("place", ["-1", "x", "1e9", "\u0661", "9" * 400])
async def test_a_number_that_is_none_is_a_bad_request(place: str) -> None:
    site = site_of({STAT.name: file("/f")})
    assert (await site.page("/files", {"path": "/f", "place": place}, "me")).status == 400


async def test_a_datanode_shows_its_volumes() -> None:
    bad = VolumeStatus(StorageId("s2"), "/disk2", "it hangs")
    good = VolumeStatus(StorageId("s1"), "/disk1", "ok", 100, 25, 50)
    status = DataNodeStatus("dn", "c", "", (good, bad), ("nn:1",), 4, 7, 1, 99, 5, 6)
    given = {DATANODE_STATUS.name: status, SHOW_SETTINGS.name: NodeSettings("datanode", ())}
    site = Site.of_datanode("dn", Answers(given), "https")
    page = await text_of(site, "/")
    assert "1 of 2 volumes are not used: it hangs." in page
    assert "/disk1" in page
    assert '<a href="https://nn:1/">' in page
    assert site.paths == ("/", "/page.json")


@pytest.mark.parametrize(
    ("others", "under_way", "health"),
    [
        ({"a:1": namenode(), "b:1": namenode(serves=False)}, 1, "healthy"),
        ({"a:1": namenode(), "b:1": namenode(serves=False)}, 8, "waiting"),
        ({"a:1": namenode()}, 8, "dead node"),
        ({"a:1": namenode(serves=False), "b:1": namenode(serves=False)}, 1, "cannot store changes"),
        ({"a:1": AccessDeniedError("no token"), "b:1": namenode(serves=False)}, 1, "healthy"),
        ({}, 1, "cannot store changes"),
    ],
)
async def test_a_gateway_tells_whether_the_cluster_answers_it(
    others: dict[str, object], under_way: int, health: str
) -> None:
    door = DoorStatus("webhdfs", "gw:9874", 7, 2, 1, 0.025, 100, 200)
    status = GatewayStatus((door,), ("a:1", "b:1"), 3, 2, under_way, 8, proves=False)
    given = {GATEWAY_STATUS.name: status, SHOW_SETTINGS.name: NodeSettings("gateway", ())}
    page = await text_of(Site.of_gateway("gw", Answers(given, others), "http"), "/")
    assert f"Health: {health}<" in page
    assert "25 ms" in page


async def test_rendering_lets_others_have_their_turns() -> None:
    """A thousand rows take tens of milliseconds; a task beside them runs again and again."""
    many = tuple(file(f"/d/{'n' * 200}-{number}") for number in range(1000))
    site = site_of({STAT.name: file("/d", Kind.DIRECTORY), LIST.name: Listing(many, more=False)})
    await site.page("/files", {"path": "/d"}, "me")  # the templates are loaded once
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    page = await site.page("/files", {"path": "/d"}, "me")
    counting.cancel()
    assert page.body.count(b"<tr>") == 1001
    assert turns > 2
