//! The one list of cases.
//!
//! An entry declares and registers: the id under which `CASES.md` tells the claim, the promises that it proves, the function, the forms in which the
//! lock is met, and what else is needed. The functions are private to this module's files, so that one that is not
//! listed is dead code. Every case that a backend's abilities admit is run; nobody picks.

mod cancel;
mod foreign;
mod forgetting;
mod interposed;
mod lease;
mod mutex;
mod naming;
mod observe;
mod outage;
mod process;
#[cfg(test)]
mod promises;
mod reentrant;
mod refusals;
mod renewal;
mod replies;
mod runtimes;
mod rwlock;
mod semaphore;
mod servers;
mod session;
mod stale;
mod swallowed;
mod waiting;

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use lock_core::Guarantee;

use crate::abilities::Need;
use crate::adapters::{ALL, FENCED, Form, ONCE, SIMPLE};
use crate::context::Cx;
use crate::failure::Verdict;
use crate::harness::ServerFault;

/// One claim, and how to try it.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The id under which `CASES.md` tells the claim.
    pub(crate) id: &'static str,
    /// The promises that it proves, such as `"K1 K3"`; for the document only.
    #[cfg(test)]
    pub(crate) proves: &'static str,
    /// The claim as a function's name.
    pub(crate) name: &'static str,
    /// The forms in which the lock is met.
    pub(crate) forms: &'static [Form],
    /// Its further needs.
    pub(crate) needs: &'static [Need],
    /// The case itself.
    pub(crate) run: fn(Arc<Cx>) -> LocalBoxFuture<'static, Verdict>,
}

macro_rules! cases {
    ($($id:literal $proves:literal $file:ident::$name:ident $forms:ident [$($need:expr),*];)+) => {
        /// Every case.
        pub(crate) const CASES: &[Case] = &[$(Case {
            id: $id,
            #[cfg(test)]
            proves: $proves,
            name: stringify!($name),
            forms: $forms,
            needs: &[$($need),*],
            run: |cx| Box::pin($file::$name(cx)),
        }),+];
    };
}

const INSPECT: Need = Need::Promise(Guarantee::Inspect);
const FORCE: Need = Need::Promise(Guarantee::ForceRelease);
const FENCING: Need = Need::Promise(Guarantee::Fencing);
const FIFO: Need = Need::Promise(Guarantee::Fifo);
const PUSH: Need = Need::Promise(Guarantee::Push);
const LIMIT: Need = Need::Promise(Guarantee::LimitCheck);
const SHARED_OWNER: Need = Need::Promise(Guarantee::SharedOwner);
const FOREIGN: Need = Need::Promise(Guarantee::ForeignClients);

cases! {
    "C-M01" "K3 K16" mutex::a_grant_is_visible_with_its_nonce_until_its_release ALL [INSPECT];
    "C-M02" "K1 K7 K8" mutex::a_try_while_held_is_refused_and_leaves_nothing ALL [];
    "C-M03" "K1 K3" mutex::sixty_four_racers_get_exactly_one_grant ALL [];
    "C-M04" "K1 K5" mutex::owners_that_take_turns_never_overlap_nor_lose_a_count ALL [];
    "C-M05" "K3" mutex::tasks_that_share_one_handle_release_only_their_own_grant ALL [];
    "C-M06" "K3" mutex::nonces_are_unique_and_use_every_bit ONCE [];
    "C-M07" "K5" mutex::a_release_hands_the_lock_to_the_waiter ALL [];
    "C-M08" "K7 K15" mutex::a_holder_that_tries_again_is_refused_rather_than_stuck ALL [];
    "C-M09" "K8" mutex::a_dropped_guard_is_released_in_the_background ALL [];
    "C-M10" "K3 K16" mutex::freeing_a_grant_that_is_not_there_changes_nothing ALL [FORCE];
    "C-M10b" "K3 K10" mutex::a_release_of_what_the_server_lost_is_not_held SIMPLE [Need::Admin];
    "C-M11" "K3 K10" stale::a_late_release_does_not_free_the_next_holder ALL [];
    "C-M11b" "K3" stale::a_release_at_the_edge_of_expiry_does_not_free_the_next_holder ALL [];
    "C-M12" "K3 K9" replies::a_release_that_is_repeated_does_not_free_the_next_hold SIMPLE [Need::Links];
    "C-M13" "K9 K10" replies::a_release_whose_reply_is_lost_frees_and_says_that_it_does_not_know SIMPLE [Need::Links];
    "C-M14" "K8 K10" mutex::a_release_that_is_dropped_before_its_reply_still_frees ALL [];
    "C-M15" "K14" mutex::locks_of_similar_names_are_independent SIMPLE [];
    "C-M16" "K14" mutex::namespaces_are_independent_and_one_namespace_is_exclusive SIMPLE [];
    "C-M17" "K1 K2" process::the_lock_of_a_killed_process_is_free_after_its_ttl ALL [Need::Processes];
    "C-M18" "K2" process::the_lock_of_a_process_that_ended_is_free_after_its_ttl ALL [Need::Processes];
    "C-M19" "K11 K16" mutex::a_forced_release_frees_the_lock_and_tells_its_holder ALL [FORCE];
    "C-M20" "K2 K9" replies::a_grant_that_comes_after_its_lease_is_refused SIMPLE [Need::Links];
    "C-M24" "K4" stale::tokens_grow_with_every_grant FENCED [FENCING];
    "C-M25" "K4" stale::a_gate_admits_every_holder_and_no_late_one FENCED [FENCING];

    "C-RE01" "K4" reentrant::an_owner_enters_again_with_the_same_token ONCE [Need::Reentrant];
    "C-RE01b" "K3" reentrant::one_owner_enters_from_two_clients ONCE [Need::Reentrant, SHARED_OWNER];
    "C-RE02" "K3" reentrant::only_the_last_of_three_releases_frees ONCE [Need::Reentrant];
    "C-RE03" "K1" reentrant::a_waiter_enters_only_after_the_last_release ONCE [Need::Reentrant];
    "C-RE04" "K1" reentrant::another_owner_of_the_same_client_is_refused ONCE [Need::Reentrant];
    "C-RE05" "K2" reentrant::a_nested_lock_never_shortens_the_outer_lease ONCE [Need::Reentrant];
    "C-RE06" "K9" replies::an_owner_whose_first_grant_was_not_answered_is_inside_once ONCE [Need::Reentrant, Need::Links];
    "C-RE07" "K12" reentrant::depth_two_is_kept_alive_by_renewal ONCE [Need::Reentrant];
    "C-RE08" "K15" reentrant::a_level_beyond_the_limit_is_refused ONCE [Need::Reentrant];
    "C-RE09" "K3 K10" reentrant::a_former_owner_s_release_does_not_touch_the_next_one ONCE [Need::Reentrant];
    "C-RE10" "K11 K13" reentrant::a_loss_is_told_on_every_level ONCE [Need::Reentrant];

    "C-RW01" "K1" rwlock::two_readers_hold_together ONCE [Need::RwLock];
    "C-RW02" "K1" rwlock::a_reader_keeps_writers_out_and_a_writer_readers ONCE [Need::RwLock];
    "C-RW03" "K1" rwlock::a_writer_keeps_writers_out ONCE [Need::RwLock];
    "C-RW04" "K1" rwlock::no_read_is_torn_and_no_write_is_lost ONCE [Need::RwLock];
    "C-RW05" "K5" rwlock::a_reader_behind_a_waiting_writer_waits ONCE [Need::RwLock, FIFO];
    "C-RW06" "K5" rwlock::a_stream_of_readers_does_not_starve_a_writer ONCE [Need::RwLock];
    "C-RW07" "K15" rwlock::an_upgrade_is_refused_at_once ONCE [Need::RwLock];
    "C-RW08" "K1" rwlock::a_downgrade_leaves_no_gap_for_a_waiting_writer ONCE [Need::RwLock];
    "C-RW09" "K4" rwlock::a_downgraded_lock_keeps_its_grant_and_admits_readers ONCE [Need::RwLock];
    "C-RW10" "K2" rwlock::a_short_reader_s_end_leaves_the_long_one_its_lease ONCE [Need::RwLock];
    "C-RW11" "K6" rwlock::a_dead_reader_among_live_ones_delays_a_writer_by_its_ttl ONCE [Need::RwLock];
    "C-RW12" "K5" rwlock::readers_behind_a_writer_enter_together ONCE [Need::RwLock];
    "C-RW13" "K5 K8" rwlock::readers_behind_a_writer_that_gave_up_proceed ONCE [Need::RwLock];
    "C-RW14" "K4" rwlock::a_writer_s_token_is_above_every_earlier_one ONCE [Need::RwLock, FENCING];
    "C-RW15" "K5" rwlock::a_reader_and_a_writer_behind_it_do_not_wait_for_each_other ONCE [Need::RwLock];
    "C-RW16" "K9 K12" replies::a_downgrade_whose_reply_is_lost_is_done_when_it_is_asked_again ONCE [Need::RwLock, Need::Links];
    "C-RW17" "K1 K2" rwlock::a_downgrade_keeps_the_length_of_an_extended_lease ONCE [Need::RwLock];

    "C-S01" "K1" semaphore::a_fourth_of_three_permits_is_refused ONCE [Need::Semaphore];
    "C-S02" "K1" semaphore::no_more_than_three_of_twelve_owners_are_inside ONCE [Need::Semaphore];
    "C-S03" "K5" semaphore::one_released_permit_admits_one_waiter ONCE [Need::Semaphore];
    "C-S04" "K3" semaphore::a_grant_is_given_back_once ONCE [Need::Semaphore];
    "C-S04b" "K3" semaphore::freeing_an_unknown_grant_frees_no_permit ONCE [Need::Semaphore, FORCE];
    "C-S05" "K8" semaphore::a_thousand_refused_tries_leave_nothing ONCE [Need::Semaphore];
    "C-S06" "K2" semaphore::permits_of_dead_holders_come_back ONCE [Need::Semaphore];
    "C-S07" "K3" semaphore::a_part_that_is_given_back_is_exactly_that_part ONCE [Need::Semaphore];
    "C-S08" "K8" semaphore::a_cancelled_waiter_leaks_no_permit ONCE [Need::Semaphore];
    "C-S09" "K3" semaphore::an_expired_permit_does_not_keep_live_ones_from_being_freed ONCE [Need::Semaphore];
    "C-S10" "K15" semaphore::clients_that_disagree_on_the_limit_are_told ONCE [Need::Semaphore, LIMIT];
    "C-S12" "K1" semaphore::owners_that_ask_for_two_of_three_never_deadlock ONCE [Need::Semaphore];
    "C-S13" "K15" semaphore::senseless_numbers_of_permits_are_refused ONCE [Need::Semaphore];
    "C-S15" "K16" semaphore::what_is_shown_as_free_can_be_taken ONCE [Need::Semaphore, INSPECT];
    "C-S16" "K9 K12" replies::permits_whose_release_is_not_answered_do_not_end_the_others ONCE [Need::Semaphore, Need::Links];

    "C-D01" "K2 K11 K13" session::a_holder_whose_session_ends_is_told_and_believes_no_more SIMPLE [Need::Sessions];
    "C-D02" "K2 K11" outage::a_holder_without_network_is_told_by_its_deadline SIMPLE [Need::Links];
    "C-D03" "K11" lease::a_loss_is_told_exactly_once_and_a_release_never ALL [];
    "C-D03b" "K11" lease::work_is_dropped_when_the_lock_is_lost ONCE [];
    "C-D04" "K3 K12" stale::a_renewal_after_the_end_does_not_take_the_lock_back ALL [];
    "C-D05" "K12" outage::an_outage_of_less_than_half_a_lease_costs_nothing SIMPLE [Need::Links];
    "C-D06" "K13" lease::a_lost_lock_can_be_taken_again_through_the_same_handle ALL [];
    "C-D07" "K2 K10" stale::a_paused_holder_sees_the_end_at_its_first_look ALL [];
    "C-D07b" "K2" lease::the_end_is_seen_without_any_background_task ONCE [];
    "C-D08" "K2" lease::what_remains_is_never_more_than_the_server_keeps ALL [INSPECT];
    "C-D09" "K2 K4" process::a_process_that_stood_still_sees_the_end_at_its_first_look ALL [Need::Processes];
    "C-D10" "K2" process::a_holder_whose_wall_clock_is_stepped_by_an_hour_notices_nothing SIMPLE [Need::Processes];
    "C-D11" "K1 K2" lease::at_the_end_of_a_lease_the_belief_ends_first ALL [];

    "C-R01" "K12" renewal::a_renewed_lock_is_held_through_many_ttls ALL [];
    "C-R02" "K12" outage::five_resets_cost_a_holder_nothing SIMPLE [Need::Links];
    "C-R03" "K12 K18" renewal::five_hundred_guards_are_renewed_without_a_loss SIMPLE [];
    "C-R04" "K12" outage::a_renewal_that_fails_now_and_then_costs_nothing SIMPLE [Need::Links];
    "C-R04b" "K2 K12" outage::a_renewal_counts_from_its_sending_however_late_its_reply SIMPLE [Need::Links];
    "C-R05" "K3 K10" renewal::a_release_that_races_a_renewal_frees SIMPLE [];
    "C-R06" "K2" renewal::the_lock_of_a_client_that_is_gone_ends_with_its_lease ALL [];
    "C-R06b" "K8" renewal::a_task_that_panics_gives_its_lock_back ALL [];
    "C-R07" "K3 K11" renewal::a_holder_learns_that_its_entry_is_gone SIMPLE [Need::Admin];
    "C-R07b" "K3 K12" renewal::a_renewal_does_not_bring_back_what_is_gone SIMPLE [Need::Admin];
    "C-R08" "K2" renewal::an_extension_by_hand_lengthens_and_never_shortens ALL [];
    "C-R08b" "K3 K12" renewal::an_extension_of_a_lease_that_is_over_is_refused ALL [];
    "C-R08c" "K2" renewal::a_shorter_extension_never_shortens_a_longer_one SIMPLE [];
    "C-R09" "K2" renewal::a_longest_hold_ends_renewal ALL [];

    "C-W01" "K5 K7" waiting::a_wait_without_limit_ends_with_the_release ALL [];
    "C-W01b" "K5" waiting::a_waiter_follows_an_expiry ALL [];
    "C-W02" "K7" waiting::a_wait_of_zero_is_a_try ALL [];
    "C-W03" "K7" waiting::the_longest_wait_does_not_overflow ALL [];
    "C-W04" "K7" waiting::the_limit_of_a_wait_is_one_for_the_whole_call ALL [];
    "C-W05" "K7" waiting::a_short_wait_ends_in_time ALL [];
    "C-W06" "K5 K8" waiting::a_waiter_that_gave_up_leaves_nothing_in_the_way ALL [];
    "C-W07" "K5" waiting::waiters_are_served_in_the_order_of_their_coming ALL [FIFO];
    "C-W08" "K8" cancel::an_acquisition_dropped_at_any_poll_leaves_nothing ALL [];
    "C-W09" "K8" outage::what_was_given_up_while_the_link_was_down_leaves_nothing SIMPLE [Need::Links];
    "C-W10" "K8" cancel::a_cancellation_at_the_instant_of_grant_leaves_a_guard_or_nothing ALL [];
    "C-W11" "K7 K10" outage::silent_servers_hold_nobody_up_for_long SIMPLE [Need::Links];
    "C-W12" "K5 K8" waiting::a_waiter_that_cancels_does_not_change_the_order ALL [FIFO];
    "C-W13" "K5" interposed::a_release_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links];
    "C-W14" "K5" interposed::a_predecessor_that_leaves_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links];
    "C-W15" "K5" waiting::a_release_wakes_one_waiter_and_not_the_herd ALL [PUSH];
    "C-W16" "K18" cancel::many_waits_of_one_client_need_no_task_each SIMPLE [];
    "C-W18" "K18" waiting::a_wait_leaves_the_only_thread_to_other_tasks ALL [];
    "C-W19" "K5" waiting::no_waiter_is_starved_by_the_others ALL [];
    "C-W20" "K5" swallowed::a_waiter_whose_event_is_swallowed_is_granted_within_a_second ALL [Need::Links, PUSH];
    "C-W21" "K5" swallowed::a_waiter_one_of_whose_replies_is_swallowed_is_granted_within_two_seconds ALL [Need::Links];

    "C-F02" "K1 K2 K11" outage::servers_that_stand_still_longer_than_a_lease_let_no_two_in SIMPLE [Need::Links];
    "C-F03" "K6" process::a_waiter_that_stands_still_across_its_turn_is_passed_over ALL [Need::Processes];
    "C-F04" "K2 K11" outage::a_holder_that_is_heard_but_hears_nothing_is_told_by_its_deadline ONCE [Need::Links];
    "C-F05" "K9" replies::an_acquisition_whose_reply_is_lost_has_no_second_effect SIMPLE [Need::Links];
    "C-F05b" "K8 K9" replies::an_acquisition_that_is_dropped_before_its_reply_is_undone_at_once SIMPLE [Need::Links];
    "C-F07" "K3 K10" session::a_former_holder_s_late_release_does_not_touch_what_a_new_session_has SIMPLE [Need::Sessions];
    "C-F08" "K5 K6" session::a_waiter_whose_session_ends_is_granted_in_its_turn_and_with_a_place SIMPLE [Need::Sessions];
    "C-F09" "K1 K5" servers::a_failover_costs_no_holder_its_lock_and_no_waiter_its_place ONCE
        [Need::DisposableServer(ServerFault::FailOver), Need::Always(Guarantee::ExclusionAcrossFailover)];
    "C-F10" "K6" process::waiters_that_are_killed_delay_the_next_one_by_a_bound ALL [Need::Processes];
    "C-F11" "K12" outage::a_link_that_is_cut_fifty_times_works_in_the_end ONCE [Need::Links];
    "C-F12" "K5 K11" waiting::a_waiter_follows_the_deletion_of_the_entry SIMPLE [Need::Admin];
    "C-F13" "K1 K4 K15" forgetting::a_restart_lets_nobody_in_beside_a_holder_and_everybody_goes_on ONCE [Need::DisposableServer(ServerFault::Restart)];
    "C-F13b" "K11" forgetting::a_restart_without_its_data_is_no_secret ONCE [Need::DisposableServer(ServerFault::Restart)];
    "C-F15" "K1" servers::a_server_s_clock_that_is_put_back_costs_nobody_a_lock ONCE [Need::DisposableServer(ServerFault::ClockStep)];
    "C-F15b" "K4 K11" servers::a_server_s_clock_that_is_put_forward_is_no_secret ONCE [Need::DisposableServer(ServerFault::ClockStep)];
    "C-F17" "K7 K15" servers::failovers_let_no_call_hang_and_everybody_goes_on ONCE [Need::DisposableServer(ServerFault::FailOver)];
    "C-F18" "K11" forgetting::what_servers_forget_while_they_run_is_no_secret ONCE [Need::DisposableServer(ServerFault::Flush)];
    "C-F19" "K9 K15" replies::replies_that_are_cut_in_the_middle_reach_nobody_else SIMPLE [Need::Links];
    "C-F20" "K10 K15" refusals::what_servers_refuse_is_told_and_costs_nobody_a_lock ONCE [Need::Refusals];
    "C-F21" "K15" refusals::servers_that_take_no_connections_are_not_stormed ONCE [Need::Links];

    "C-N01" "K14" naming::odd_names_work_and_do_not_collide SIMPLE [];
    "C-N02" "K14" naming::names_that_differ_only_in_case_are_two SIMPLE [];
    "C-N03" "K7 K15" naming::senseless_durations_are_refused_and_odd_ones_work ALL [];
    "C-N04" "K14" naming::empty_and_overlong_names_are_refused_and_long_ones_work SIMPLE [];
    "C-N05" "K14" naming::a_thousand_random_names_are_independent SIMPLE [];
    "C-N06" "K15" naming::foreign_garbage_in_its_place_is_a_typed_error ONCE [Need::Admin];
    "C-N08" "K7" naming::callers_that_name_locks_in_different_orders_never_deadlock ONCE [];
    "C-N11" "K14" naming::kinds_of_one_name_do_not_collide ONCE [];

    "C-O01" "K16" observe::inspection_shows_the_holder_and_the_queue ALL [INSPECT];
    "C-O01b" "K16" observe::an_operator_frees_exactly_the_named_grant ALL [INSPECT, FORCE];
    "C-O02" "K17" observe::meters_move_by_exactly_what_happened ALL [];
    "C-O02b" "K17" observe::a_push_is_measured_until_its_guard ALL [PUSH];
    "C-O03" "K15" observe::an_error_names_lock_backend_and_phase ALL [];
    "C-O04" "K17" observe::every_acquisition_closes_its_span_with_its_outcome ALL [];
    "C-O05" "K16" observe::whether_a_lock_is_free_is_shown_as_it_is SIMPLE [INSPECT];
    "C-L01" "K18" observe::a_thousand_locks_cost_as_many_tasks_as_one SIMPLE [];
    "C-L02" "K8" observe::a_thousand_failed_tries_leave_the_servers_as_they_were ALL [Need::GroundTruth];
    "C-L03" "K8 K18" observe::a_client_that_is_gone_leaves_neither_entries_nor_tasks SIMPLE [];
    "C-L03b" "K8" observe::a_client_that_is_closed_has_given_everything_back ALL [];
    "C-L07" "K8" runtimes::guards_and_clients_may_be_dropped_outside_of_any_runtime ALL [];
    "C-L07b" "K12" runtimes::a_handle_works_on_another_runtime_and_after_it_has_ended SIMPLE [];
    "C-L07c" "K11" runtimes::a_loss_is_told_elsewhere_when_the_client_s_runtime_has_ended SIMPLE [];
    "C-L07d" "K12" runtimes::a_guard_is_renewed_elsewhere_when_the_client_s_runtime_has_ended SIMPLE
        [Need::Always(Guarantee::RenewalAcrossRuntimes)];

    "C-I01" "K1 K14" foreign::a_foreign_holder_keeps_us_out ONCE [Need::Foreign, FOREIGN];
    "C-I02" "K1 K14" foreign::our_holder_keeps_foreign_clients_out ONCE [Need::Foreign, FOREIGN];
    "C-I03" "K5" foreign::our_waiter_follows_a_foreign_release ONCE [Need::Foreign, FOREIGN];
    "C-I04" "K5" foreign::our_queue_does_not_starve_a_foreign_client ONCE [Need::Foreign, FOREIGN];
    "C-I05" "K5" foreign::foreign_clients_do_not_starve_our_queue ONCE [Need::Foreign, FOREIGN];
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const TOLD: &str = include_str!("../../CASES.md");

    /// The ids that head a line of the section that begins with this heading.
    fn ids_under(heading: &str) -> HashSet<&'static str> {
        let section = TOLD.split_once(heading).unwrap().1;
        let section = section.split("\n## ").next().unwrap();
        section.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**")).map(|(id, _)| id).collect()
    }

    #[test]
    fn every_id_is_given_once_and_its_claim_is_told() {
        let listed: HashSet<_> = CASES.iter().map(|case| case.id).collect();
        assert_eq!(listed.len(), CASES.len(), "an id is given twice");
        let told = ids_under("\n## Claims");
        let untold: Vec<_> = listed.difference(&told).collect();
        let unlisted: Vec<_> = told.difference(&listed).collect();
        assert!(untold.is_empty() && unlisted.is_empty(), "not in CASES.md: {untold:?}; only there: {unlisted:?}");
        let absent = ids_under("\n## Not in this suite yet");
        assert!(absent.is_disjoint(&listed), "listed as absent, but present");
    }

    #[test]
    fn a_case_has_a_form_and_a_name_that_reads_as_a_sentence() {
        for case in CASES {
            assert!(!case.forms.is_empty(), "{} is never run", case.id);
            assert!(case.name.split('_').count() >= 4, "{} is no sentence", case.name);
        }
    }
}
