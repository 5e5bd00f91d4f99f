"""Each planted fault is noticed: by directed tests, or by seeds of the simulation.

The seeds were found with `python -m tests.raft.planted_faults`; when the simulation changes, they
have to be found again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.raft import planted_faults as faults
from tests.raft import (
    test_audit_log,
    test_audit_votes,
    test_crash_states,
    test_list_entries,
    test_reads,
    test_storage,
)
from tests.raft.planted_faults import Plant, directed_tests, fails
from tests.raft.simulation import simulate

SEEN_BY_A_TEST: dict[Plant, Callable[[], None]] = {
    faults.votes_only_in_memory: test_audit_votes.test_v1_a_vote_survives_a_restart,
    faults.followers_acknowledge_before_the_sync: (
        test_audit_log.test_s3_nothing_is_acknowledged_before_it_is_durable
    ),
    faults.leaders_count_themselves_before_the_sync: (
        test_audit_log.test_a_leader_counts_itself_only_when_its_own_disk_has_the_entry
    ),
    faults.entries_of_older_terms_are_counted: (
        test_audit_log.test_l4_entries_of_an_older_term_are_committed_by_the_first_of_this_one
    ),
    faults.reads_ask_nobody: (
        test_audit_log.test_l13_a_read_waits_for_a_majority_that_still_follows
    ),
    faults.reads_do_not_wait_for_the_first_entry: (
        test_audit_log.test_l13_a_new_leader_reads_only_after_its_first_entry_is_committed
    ),
    faults.checksums_are_not_checked: (
        test_storage.test_a_garbled_tail_that_was_never_synced_is_cut_off
    ),
    faults.votes_go_to_older_logs: (
        test_audit_votes.test_a_candidate_with_an_older_log_gets_no_vote
    ),
    faults.followers_cut_without_a_conflict: (
        test_audit_log.test_l2_a_repeated_message_erases_nothing
    ),
    faults.votes_are_counted_instead_of_voters: (
        test_audit_votes.test_v4_a_voter_that_says_it_twice_is_one_voter
    ),
    faults.votes_of_older_terms_are_counted: (
        test_audit_votes.test_v5_a_vote_of_an_older_term_elects_nobody
    ),
    faults.followers_forget_their_vote: (
        test_audit_votes.test_v2_a_candidate_whose_time_runs_out_keeps_its_own_vote
    ),
    faults.followers_claim_their_whole_log: (
        test_audit_log.test_l2_a_repeated_message_erases_nothing
    ),
    faults.answers_of_older_terms_are_counted: (
        test_audit_log.test_l8_an_answer_of_an_older_term_commits_nothing
    ),
    faults.a_snapshot_keeps_a_tail_that_does_not_match: (
        test_audit_log.test_a_snapshot_replaces_a_longer_log_that_does_not_match
    ),
    faults.reads_take_an_earlier_round: (
        test_audit_log.test_l13_a_round_that_was_asked_before_a_read_does_not_confirm_it
    ),
    faults.followers_ask_nobody: (
        test_reads.test_a_follower_asks_its_leader_before_it_shows_anything
    ),
    faults.followers_do_not_wait_until_it_is_applied: (
        test_reads.test_a_follower_waits_until_it_has_what_was_committed
    ),
    faults.questions_are_answered_to_those_that_come_later: (
        test_reads.test_a_read_that_comes_while_a_question_is_under_way_waits_for_the_next_one
    ),
    faults.leaders_answer_questions_without_a_majority: (
        test_reads.test_of_five_members_the_leader_asks_others_first
    ),
    faults.followers_commit_an_entry_of_another_term: (
        test_reads.test_a_follower_does_not_commit_an_entry_of_another_term
    ),
    faults.snapshots_are_adopted_before_they_are_durable: (
        test_audit_log.test_a_snapshot_replaces_a_longer_log_that_does_not_match
    ),
    faults.entries_are_applied_while_a_table_is_installed: (
        test_audit_log.test_nothing_is_applied_while_another_members_table_is_installed
    ),
    faults.followers_do_not_compare_terms: (
        test_audit_log.test_l11_a_whole_term_that_conflicts_is_skipped_at_once
    ),
    faults.followers_commit_what_the_leader_did_not_send: (
        test_audit_log.test_a_follower_commits_only_what_it_knows_to_be_the_leaders
    ),
    faults.records_go_before_what_voids_them_is_durable: partial(
        test_crash_states.test_what_was_durable_is_there_after_any_life_and_the_lives_after_it, 0
    ),
    faults.the_mark_is_not_asked: (
        test_storage.test_a_journal_that_lost_what_it_had_confirmed_stops_the_start
    ),
    faults.the_mark_is_ahead_of_the_sync: partial(
        test_crash_states.test_what_was_durable_is_there_after_any_life_and_the_lives_after_it, 0
    ),
    faults.a_leader_leaves_its_callers_waiting: (
        test_audit_log.test_l6_a_leader_that_steps_down_leaves_nobody_waiting
    ),
    faults.lists_count_once_they_are_committed: (
        test_list_entries.test_a_list_counts_as_soon_as_it_is_appended
    ),
    faults.lists_change_before_an_entry_of_the_term: (
        test_list_entries.test_no_list_is_changed_before_an_entry_of_the_term_is_committed
    ),
    faults.two_lists_are_under_way: (test_list_entries.test_one_change_is_under_way_at_a_time),
    faults.whoever_learns_is_counted: (test_list_entries.test_what_a_learner_has_counts_nowhere),
    faults.votes_of_all_are_counted: (
        test_list_entries.test_votes_of_those_that_the_list_lacks_elect_nobody
    ),
    faults.lists_that_are_cut_stay: test_list_entries.test_a_list_that_is_cut_counts_no_more,
}

SEEN_BY_A_SEED: dict[Plant, int] = {
    faults.half_is_a_majority: 0,
    faults.compaction_forgets_too_much: 1,
    faults.followers_acknowledge_before_the_sync: 5,
    faults.followers_cut_without_a_conflict: 7,
    faults.followers_claim_their_whole_log: 15,
    faults.followers_do_not_compare_terms: 6,
    faults.followers_commit_what_the_leader_did_not_send: 6,
    faults.checksums_are_not_checked: 41,
    faults.votes_only_in_memory: 0,
    faults.votes_are_counted_instead_of_voters: 15,
    faults.votes_go_to_older_logs: 7,
    faults.reads_ask_nobody: 35,
    faults.reads_do_not_wait_for_the_first_entry: 36,
    faults.reads_take_an_earlier_round: 58,
    faults.followers_ask_nobody: 0,
    faults.questions_are_answered_to_those_that_come_later: 26,
    faults.snapshots_are_adopted_before_they_are_durable: 8,
}


@pytest.mark.parametrize("plant", SEEN_BY_A_TEST, ids=lambda plant: plant.__name__)
def test_a_directed_test_notices(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = SEEN_BY_A_TEST[plant]
    assert not fails(witness)
    plant(monkeypatch)
    assert fails(witness)


@pytest.mark.parametrize("plant", SEEN_BY_A_SEED, ids=lambda plant: plant.__name__)
def test_the_simulation_notices(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert simulate(SEEN_BY_A_SEED[plant]).violations


def test_every_planted_fault_has_a_witness() -> None:
    assert set(SEEN_BY_A_TEST) | set(SEEN_BY_A_SEED) == set(faults.FAULTS)
    assert len(directed_tests()) > 40
