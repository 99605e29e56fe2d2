//! The suite that every store passes. The tests of a single store cover only its files, locks and crashes.
//! Each promise is one function; a store runs them all with [`promises!`].
//!
//! [`promises!`]: crate::promises

#![expect(clippy::unwrap_used, reason = "a suite fails by panicking")]

mod audit;
mod consumers;
mod crashes;
mod dedup;
mod documents;
mod entries;
mod expiry;
mod fixture;
mod held;
mod ledger;
mod operator;
mod queue;
mod receipts;
mod registry;
mod rollups;
mod shares;
mod strikes;
mod waiting;
mod working;

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::Store;

use crate::ManualClock;

pub use audit::*;
pub use consumers::*;
pub use crashes::*;
pub use dedup::*;
pub use documents::*;
pub use entries::*;
pub use expiry::*;
pub use fixture::{StoreFixture, batch, delivery_to, lane, message, success, url, webhook};
pub use held::*;
pub use ledger::*;
pub use operator::*;
pub use queue::*;
pub use receipts::*;
pub use registry::*;
pub use rollups::*;
pub use shares::*;
pub use strikes::*;
pub use waiting::*;
pub use working::WorkingStore;

/// Makes the stores that the suite examines.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// An empty store on a clock that the suite moves.
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;

    /// The same store after a crash; `None` if it keeps nothing.
    async fn reopen(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
    ) -> Option<Arc<dyn Store>>;

    /// Whether texts take as many bytes in the store as they have.
    fn keeps_sizes(&self) -> bool {
        true
    }
}

/// Makes one test of each promise, on the stores of a factory.
#[macro_export]
macro_rules! promises {
    ($factory:expr) => {
        $crate::promises! { @each $factory;
            accepted_work_is_leased_in_order_of_due_time
            a_message_is_stored_once_for_many_deliveries
            work_for_later_is_not_leased_before
            lanes_are_ready_longest_due_first
            a_lease_keeps_others_away_until_it_ends
            expired_lease_is_leased_again
            an_old_token_is_refused
            a_late_settlement_counts_if_nobody_leased_since
            a_repeated_settlement_counts_once_and_answers_as_before
            a_retry_is_due_after_its_delay
            parked_work_keeps_its_attempts
            every_attempt_of_a_lease_is_remembered
            released_work_is_due_at_once_and_unchanged
            a_finished_delivery_is_never_leased_again
            many_lanes_are_served_each_with_its_own_work
            more_work_than_fits_in_memory_is_served_in_order
            no_delivery_is_leased_by_two_consumers
            one_consumer_leads
            a_consumer_that_closes_hands_over_in_order
            the_work_of_a_dead_consumer_comes_to_the_others
            a_restarted_worker_takes_its_own_work_back_at_once
            suspended_lanes_are_those_of_one_consumer
            waiting_ends_when_a_consumer_gets_work_of_another
            a_repeat_after_a_lost_answer_changes_nothing
            each_message_of_a_batch_has_its_own_answer
            the_clock_of_the_store_is_the_one_it_was_given
            nodes_together_make_no_more_calls_than_a_rate_allows
            rates_of_other_names_are_others
            a_repeated_key_gets_the_first_answer
            a_repeat_is_known_without_accepting_anything
            a_key_with_another_body_is_a_conflict
            a_key_repeated_within_a_batch_counts
            a_key_is_free_again_when_its_window_ends
            a_key_lives_at_least_as_long_as_its_message
            a_list_is_accepted_only_if_none_of_its_deliveries_is_a_repeat
            a_delivery_of_a_list_is_known_by_a_single_message
            keys_survive_a_restart
            many_keys_are_distinguished
            a_duplicate_of_forgotten_work_still_names_its_message
            a_dead_letter_can_be_found_and_replayed
            a_second_replay_with_the_same_time_leaves_alone_what_the_first_put_back
            single_deliveries_are_cancelled
            a_replay_is_paced
            a_replay_sets_its_own_ttl_and_policy
            discarded_dead_letters_leave_the_list_and_lose_their_body
            a_filter_chooses_dead_letters
            held_work_waits_until_it_is_released
            what_was_scheduled_or_tried_before_is_so_after_a_release
            held_work_expires_and_can_be_cancelled
            a_release_chooses_by_tenant_filter_and_id_and_is_paced
            one_tenant_does_not_act_on_anothers
            cancel_stops_deliveries_that_are_not_sent_yet
            cancel_reaches_work_whose_lease_ended
            gone_halts_deliveries_that_are_queued_for_the_address
            gone_reaches_only_its_tenant
            a_deleted_address_halts_what_was_accepted_before
            an_address_that_is_only_forgotten_cancels_nothing
            the_mark_of_a_deleted_address_ends
            counts_are_exact
            pages_cover_everything_once
            filters_find_the_right_deliveries
            deliveries_are_found_by_the_tags_of_their_message
            deliveries_and_dead_letters_are_found_by_lane_account_error_and_campaign
            a_delivery_that_fell_back_is_found_by_its_new_lane
            a_tag_chooses_dead_letters_and_held_work
            a_tag_of_forgotten_work_finds_nothing
            bodies_are_erased_when_nothing_needs_them
            a_fan_out_keeps_its_body_until_the_last_is_final
            prune_deletes_only_old_final_deliveries
            a_tenant_may_have_its_own_retention
            a_dead_letter_is_discarded_when_its_time_is_over
            lanes_show_their_depth
            a_lane_has_an_id_before_it_has_work
            the_oldest_pending_is_known
            a_delivery_in_flight_is_shown_as_sending
            history_is_kept_and_bounded
            an_address_keeps_its_id
            a_returning_address_is_no_longer_gone
            an_address_gets_another_hash_and_stays_itself
            addresses_are_listed_by_page_and_recipient
            what_a_tenant_keeps_is_counted
            everything_survives_a_restart
            leases_do_not_survive_a_restart
            ids_grow_even_if_the_clock_goes_back
            receipts_move_a_sent_delivery_forward
            receipts_in_any_order_and_repeated_end_in_the_same_state
            counts_and_lists_follow_receipts
            a_receipt_before_the_result_is_early
            a_receipt_of_nothing_is_unknown
            a_receipt_wakes_nothing_that_ended_otherwise
            a_receipt_keeps_its_delivery_for_longer
            documents_are_kept_and_listed_by_name
            versions_grow_over_all_documents_also_after_a_restart
            a_document_is_written_only_over_the_expected_version
            only_one_of_many_makes_a_new_document
            a_document_ends_with_its_time
            nothing_ends_its_time_while_the_clock_is_in_doubt
            changes_tell_the_present_state_of_what_changed
            waiting_for_changes_ends_with_one_or_in_time
            forgotten_deletions_are_told_by_listing_everything
            only_so_many_deletions_are_remembered
            a_position_of_another_store_gets_everything
            expired_work_is_leased_whatever_its_lane_does
            nothing_ends_or_is_forgotten_while_the_clock_is_in_doubt
            expired_work_is_found_after_a_restart
            work_accepted_right_after_a_crash_expires
            expiry_follows_a_replay
            finished_work_does_not_expire
            waiting_ends_for_those_who_lease_expired_work
            the_load_is_what_is_pending
            a_fallback_goes_to_the_next_address
            a_fallback_without_another_address_waits
            a_crash_is_counted_for_deliveries_in_flight
            suspects_of_two_crashes_are_leased_one_at_a_time
            a_suspect_that_is_not_attempted_does_not_stop_the_others
            suspects_go_on_when_their_lane_does
            an_attempt_that_ended_clears_the_count_and_waiting_does_not
            a_started_attempt_is_known_until_it_is_settled
            giving_back_a_started_attempt_says_that_nothing_was_sent
            an_attempt_does_not_start_under_an_ended_lease
            cancel_stops_the_retry_of_deliveries_in_flight
            cancel_reaches_a_delivery_that_nobody_settles
            waiting_ends_when_work_arrives
            waiting_ends_when_work_becomes_due
            waiting_ends_when_a_lease_ends
            work_that_was_listed_already_does_not_wake
            waiting_ends_in_time
            a_suspended_lane_is_not_ready_until_its_time
            a_lane_suspended_again_has_the_newer_end
            work_in_a_suspended_lane_wakes_nobody
            waiting_ends_when_a_lane_is_resumed
            a_resumed_lane_waits_for_work_that_is_due_later
            strikes_are_counted_by_kind_and_come_with_the_lease
            a_success_clears_the_strikes_of_its_address
            a_fenced_settlement_adds_no_strike
            a_forgiven_address_starts_again_without_strikes
            an_address_that_is_gone_by_strikes_keeps_them_as_evidence
            struck_addresses_are_listed_by_page_and_by_suspicion
            old_strikes_are_deleted
            strikes_survive_a_restart
            what_is_learned_about_a_target_is_stored_with_its_address
            audit_entries_are_appended_in_one_order
            only_one_of_many_writers_appends_a_number
            audit_entries_are_shown_by_tenant_and_page
            old_audit_entries_are_deleted_but_never_the_last
            audit_entries_survive_a_restart
            a_part_of_a_rollup_replaces_the_one_before
            rollups_are_shown_by_time_and_tenant
            old_rollups_are_deleted
            rollups_are_listed_in_pages
            rollups_survive_a_restart
            an_entry_is_read_by_its_key_and_changed_under_its_version
            entries_are_listed_in_pages
            entries_survive_a_restart
            entries_count_as_holdings_of_their_tenant
            a_lease_names_the_recipient
        }
    };
    (@each $factory:expr; $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let factory = $factory;
                $crate::conformance::$name(&$crate::conformance::StoreFixture::new(&factory).await).await;
            }
        )*
    };
}
