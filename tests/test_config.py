"""Settings: where they come from, which one wins, and what a mistake is answered with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from paxosblock.base.settings import settings_of
from paxosblock.config import (
    SECTIONS,
    ClientConfig,
    Config,
    DataNodeConfig,
    NameNodeConfig,
    changed_settings,
    load_config,
)
from paxosblock.errors import ConfigError
from paxosblock.protocol.types import Durability


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node.toml"


def test_without_file_environment_and_flags_the_defaults_hold() -> None:
    assert load_config(DataNodeConfig, environment={}) == DataNodeConfig()


def test_the_environment_wins_over_the_file_and_a_flag_wins_over_both(file: Path) -> None:
    file.write_text('[client]\nwindow = 2\nreplication = 2\nblock_size = "64MiB"\n')
    config = load_config(
        ClientConfig,
        file,
        environment={"PAXOSBLOCK_CLIENT_WINDOW": "5", "PAXOSBLOCK_CLIENT_REPLICATION": "5"},
        flags={"window": "7", "replication": None},
    )
    assert (config.window, config.replication, config.block_size) == (7, 5, 64 * 2**20)


def test_a_node_reads_its_own_section_of_a_file_that_all_nodes_share(file: Path) -> None:
    file.write_text('[namenode]\nheartbeat_interval = "2s"\n[datanode]\nmax_read = "1MiB"\n')
    assert load_config(DataNodeConfig, file, {}) == DataNodeConfig(max_read_bytes=2**20)


def test_a_choice_is_written_as_its_name() -> None:
    config = load_config(ClientConfig, environment={}, flags={"durability": "memory"})
    assert config.durability is Durability.MEMORY


def test_variables_of_other_sections_and_programs_are_left_alone() -> None:
    environment = {"PAXOSBLOCK_NAMENODES": "a:1", "PAXOSBLOCK_CLIENT_WINDOW": "9", "HOME": "/"}
    assert load_config(NameNodeConfig, environment=environment) == NameNodeConfig()


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_field_can_be_set(kind: type[Config]) -> None:
    settable = [setting.attribute for setting in settings_of(kind).values()]
    assert settable == [field.name for field in fields(kind)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[client]\nchunk_sise = "1MiB"\n',
            "[client] chunk_sise: unknown setting 'chunk_sise'; did you mean 'chunk_size'?",
        ),
        ("[client]\nfoo = 1\n", "[client] foo: unknown setting 'foo'"),
        (
            "[cleint]\nwindow = 4\n",
            "[cleint]: unknown section 'cleint'; did you mean 'client'?",
        ),
        (
            '[client]\nwindow = "4"\n',
            "[client] window = '4': expected a whole number from 1 on",
        ),
        (
            "[client]\nwindow = 0\n",
            "[client] window = 0: expected a whole number from 1 on",
        ),
        (
            "[client]\nwindow = true\n",
            "[client] window = True: expected a whole number from 1 on",
        ),
        (
            "[client]\nrpc_timeout = 10\n",
            '[client] rpc_timeout = 10: expected a duration above zero, such as "60s"'
            " (duration '10' has no unit: add one of us, ms, s, min, h, d)",
        ),
        (
            '[client]\ndurability = "ram"\n',
            '[client] durability = \'ram\': expected one of "disk", "memory"',
        ),
        ("client = 3\n", "client = 3: expected a section"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_the_place(
    text: str, message: str, file: Path
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(ClientConfig, file, {})
    assert str(refused.value) == f"{file}: {message}"


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^PAXOSBLOCK_CLIENT_WINDOW = 'x': expected a whole"):
        load_config(ClientConfig, environment={"PAXOSBLOCK_CLIENT_WINDOW": "x"})


def test_a_mistake_in_a_flag_names_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--chunk-size = '0B': expected a size above zero"):
        load_config(ClientConfig, environment={}, flags={"chunk_size": "0B"})


@pytest.mark.parametrize("content", [b"[client\n", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_an_error_that_names_the_file(
    content: bytes, file: Path
) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load_config(ClientConfig, file, {})
    assert str(refused.value).startswith(f"{file}: ")


def test_a_missing_file_is_an_error_that_names_the_file(file: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(ClientConfig, file, {})
    assert str(refused.value) == f"{file}: No such file or directory"


def test_a_program_cannot_build_a_configuration_that_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match=r"^vote_timeout_s = nan: expected a duration above zero"):
        ClientConfig(vote_timeout_s=float("nan"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"datanode_stale_after": "20s"},
            "datanode_stale_after_s = 20.0 is more than datanode_dead_after_s = 15.0",
        ),
        (
            {"lease_hard_limit": "1s"},
            "lease_soft_limit_s = 60.0 is more than lease_hard_limit_s = 1.0",
        ),
        (
            {"heartbeat_interval": "1h"},
            "heartbeat_interval_s = 3600.0 is more than datanode_stale_after_s = 3.0",
        ),
        ({"replication": 100000}, "replication = 100000 is more than 32"),
        ({"min_replication": 4}, "min_replication = 4 is more than replication = 3"),
        ({"election_min": "1s"}, "election_min_s = 1.0 is more than election_max_s = 0.8"),
        (
            {"leader_heartbeat": "200ms", "election_min": "300ms"},
            "leader_heartbeat = 200ms is more than 100ms, a third of election_min",
        ),
        (
            {"chunk_size": "32MiB"},
            "chunk_size = 32MiB is more than 16MiB, the smaller of block_size and what one frame"
            " carries",
        ),
        (
            {"block_size": "1KiB"},
            "chunk_size = 512KiB is more than 1KiB, the smaller of block_size and what one frame"
            " carries",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    flags: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(NameNodeConfig, environment={}, flags=flags)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"replication": 33}, "replication = 33 is more than 32"),
        (
            {"lease_interval": "2min"},
            "lease_interval = 2min is more than 30s, half of the NameNodes' lease_soft_limit",
        ),
    ],
)
def test_settings_of_a_client_that_no_namenode_takes_are_refused(
    flags: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(ClientConfig, environment={}, flags=flags)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("PAXOSBLOCK_CLIENT_REPLICATON", "PAXOSBLOCK_CLIENT_REPLICATION"),
        ("PAXOSBLOCK_NAMENODE", "PAXOSBLOCK_NAMENODES"),
        ("PAXOSBLOCK_DATANODE_HEARTBEAT_INTERVALL", "PAXOSBLOCK_DATANODE_HEARTBEAT_INTERVAL"),
    ],
)
def test_a_variable_that_is_misspelt_is_refused_whatever_section_it_means(
    variable: str, meant: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(ClientConfig, environment={variable: "2"})
    assert str(refused.value) == f"unknown variable {variable}; did you mean {meant!r}?"


def test_a_silence_that_no_beat_could_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^hung_after = 39ms is less than 40ms, the time of 4"):
        load_config(ClientConfig, environment={}, flags={"hung_after": "39ms"})


@pytest.mark.parametrize(("written", "share"), [("0.5", 0.5), ("0", 0.0), ("1", 1.0)])
def test_a_share_is_a_number_from_0_to_1(written: str, share: float) -> None:
    environment = {"PAXOSBLOCK_NAMENODE_SAFE_MODE_THRESHOLD": written}
    assert load_config(NameNodeConfig, None, environment).safe_mode_threshold == share


@pytest.mark.parametrize("written", ["1.01", "-0.1", "99 %", "nan", "true"])
def test_what_is_no_share_is_refused(written: str) -> None:
    environment = {"PAXOSBLOCK_NAMENODE_SAFE_MODE_THRESHOLD": written}
    with pytest.raises(ConfigError, match=r"MODE_THRESHOLD = .*: expected a share from 0 to 1"):
        load_config(NameNodeConfig, None, environment)


def test_racks_are_paths_and_a_table_of_them_is_written_as_a_table_or_in_one_line(
    file: Path,
) -> None:
    file.write_text('[namenode.racks]\ndn1 = "/dc1/r1"\n"host:9864" = "/dc1/r2"\n')
    racks = (("dn1", "/dc1/r1"), ("host:9864", "/dc1/r2"))
    assert load_config(NameNodeConfig, file, {}).racks == racks
    line = {"PAXOSBLOCK_NAMENODE_RACKS": "dn1=/dc1/r1,host:9864=/dc1/r2"}
    assert load_config(NameNodeConfig, environment=line).racks == racks
    assert load_config(DataNodeConfig, environment={}, flags={"rack": "/r7"}).rack == "/r7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[datanode]\nrack = "r7"\n', "rack = 'r7': expected a rack, a path such as \"/dc1/r7\""),
        ("[datanode]\nrack = 7\n", 'rack = 7: expected a rack, a path such as "/dc1/r7"'),
        ('[datanode]\nhost = "a b"\n', "host = 'a b': expected a machine's name, without spaces"),
        (
            '[namenode]\nracks = { dn1 = "r7" }\n',
            "racks = {'dn1': 'r7'}: expected a table of racks by DataNode or machine, such as "
            "{ dn1 = \"/dc1/r7\" } (dn1 = 'r7' is none)",
        ),
        (
            "[namenode]\nracks = 7\n",
            "racks = 7: expected a table of racks by DataNode or machine, such as "
            '{ dn1 = "/dc1/r7" } (this is no table)',
        ),
    ],
)
def test_what_is_no_rack_is_refused_in_one_line(text: str, message: str, file: Path) -> None:
    file.write_text(text)
    kind = NameNodeConfig if "namenode" in text else DataNodeConfig
    with pytest.raises(ConfigError) as refused:
        load_config(kind, file, {})
    assert str(refused.value) == f"{file}: [{kind.section}] {message}"


def test_a_rate_is_written_per_second() -> None:
    config = load_config(DataNodeConfig, environment={}, flags={"copy_bandwidth": "2MiB/s"})
    assert config.copy_bandwidth_bytes_per_s == 2 << 20
    with pytest.raises(ConfigError, match=r"expected a rate above zero, such as \"64MiB/s\""):
        load_config(DataNodeConfig, environment={}, flags={"copy_bandwidth": "2MiB"})


def test_copies_are_not_slower_than_a_holder_waits() -> None:
    with pytest.raises(ConfigError, match=r"^copy_bandwidth = 64KiB/s is less than 1MiB/s$"):
        DataNodeConfig(copy_bandwidth_bytes_per_s=64 << 10)


def test_a_umask_is_octal_digits_wherever_it_is_written(file: Path) -> None:
    file.write_text('[client]\numask = "027"\n')
    config = load_config(ClientConfig, file, {})
    assert config.umask == 0o027
    assert list(changed_settings(config)) == [("umask", "027", "022")]
    environment = {"PAXOSBLOCK_CLIENT_UMASK": "77"}
    assert load_config(ClientConfig, file, environment).umask == 0o77
    assert load_config(ClientConfig, environment={}, flags={"umask": "0002"}).umask == 0o002


@pytest.mark.parametrize("written", ["22", '"0o22"', '"1777"', '"8"', '""', '"u=rwx"'])
def test_what_might_be_another_umask_is_refused(written: str, file: Path) -> None:
    file.write_text(f"[client]\numask = {written}\n")
    with pytest.raises(ConfigError, match=r"umask = .*: expected octal digits from 0 to 777 in"):
        load_config(ClientConfig, file, {})


def test_a_name_of_digits_in_the_environment_is_a_name() -> None:
    environment = {"PAXOSBLOCK_CLIENT_USER": "1000"}
    assert load_config(ClientConfig, environment=environment).user == "1000"
