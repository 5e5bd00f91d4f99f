"""Leases: two limits after the last renewal, on a clock in the test's hand."""

from __future__ import annotations

import pytest

from paxosblock.namenode.catalog.records import RECOVERY_WRITER
from paxosblock.namenode.leases import Expired, Leases
from tests.namenode.scene import ANN, BOB


@pytest.fixture
def leases() -> Leases:
    """Ann writes files 1 and 2, bob writes 3; all since second 0."""
    leases = Leases(soft_limit_s=60, hard_limit_s=1200)
    leases.open(ANN, 1, 0)
    leases.open(ANN, 2, 0)
    leases.open(BOB, 3, 0)
    return leases


def test_a_lease_is_live_until_the_soft_limit(leases: Leases) -> None:
    assert leases.is_live(ANN, 59.9)
    assert not leases.is_live(ANN, 60)


def test_a_renewal_starts_both_limits_again(leases: Leases) -> None:
    assert leases.renew([ANN], 50) == ()
    assert leases.is_live(ANN, 109)
    assert leases.expired(1200) == (Expired(3, BOB),)


def test_opening_another_file_renews_too(leases: Leases) -> None:
    leases.open(ANN, 4, 50)
    assert leases.is_live(ANN, 109)


def test_after_the_hard_limit_the_files_are_to_be_recovered(leases: Leases) -> None:
    assert leases.expired(1199) == ()
    assert leases.expired(1200) == (Expired(1, ANN), Expired(2, ANN), Expired(3, BOB))


def test_a_writer_without_files_is_told_that_its_lease_is_lost(leases: Leases) -> None:
    leases.release(1)
    assert leases.renew([ANN, BOB], 1) == ()
    leases.release(2)
    assert leases.renew([ANN, BOB], 2) == (ANN,)
    assert len(leases) == 1


def test_a_fenced_file_waits_for_recovery_at_once_and_its_writer_has_lost_it(
    leases: Leases,
) -> None:
    leases.open(RECOVERY_WRITER, 3, 10)
    assert leases.renew([BOB], 10) == (BOB,)
    assert leases.expired(10) == (Expired(3, RECOVERY_WRITER),)
    assert not leases.is_live(RECOVERY_WRITER, 10)


def test_recovery_does_not_renew(leases: Leases) -> None:
    leases.open(RECOVERY_WRITER, 3, 10)
    assert leases.renew([RECOVERY_WRITER], 11) == (RECOVERY_WRITER,)


def test_releasing_what_nobody_holds_is_harmless(leases: Leases) -> None:
    leases.release(99)
    assert len(leases) == 2
