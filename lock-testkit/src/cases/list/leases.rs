//! The cases of leases, their renewal and loss, and of waits.

use super::{FIFO, INSPECT, PUSH};
use crate::abilities::Need;
use crate::adapters::{ALL, ONCE, SIMPLE};
use crate::cases::{Case, cancel, interposed, lease, outage, process, renewal, session, stale, swallowed, waiting};

cases! {
    "Lease and loss" {
        /// A holder whose session is ended behind its client's back is told within a lease, and believes no more; the same client takes the lock
        /// again in a new session.
        "C-D01" "K2 K11 K13" session::a_holder_whose_session_ends_is_told_and_believes_no_more SIMPLE [Need::Sessions];
        /// A holder whose network is dead is told by its deadline, without any event, and the lock is free afterwards.
        "C-D02" "K2 K11" outage::a_holder_without_network_is_told_by_its_deadline SIMPLE [Need::Links];
        /// A loss is told exactly once to everybody who asked, and to who asks later; a release never is.
        "C-D03" "K11" lease::a_loss_is_told_exactly_once_and_a_release_never ALL [];
        /// Work under `while_held` is dropped when the lock is lost.
        "C-D03b" "K11" lease::work_is_dropped_when_the_lock_is_lost ONCE [];
        /// `ended()` resolves with a release and with a loss, and tells which.
        "C-D12" "K11" lease::the_end_of_a_hold_is_told_whatever_it_is ALL [];
        /// `expires_within(d)` resolves when `remaining()` is d, while the lock is still held.
        "C-D13" "K11" lease::a_warning_comes_in_time_before_the_lease_ends SIMPLE [];
        /// After A's end and B's grant, A's renewal and extension do not take the lock back.
        "C-D04" "K3 K12" stale::a_renewal_after_the_end_does_not_take_the_lock_back ALL [];
        /// An outage of less than half a lease costs no lock.
        "C-D05" "K12" outage::an_outage_of_less_than_half_a_lease_costs_nothing SIMPLE [Need::Links];
        /// A lost lock can be taken again through the same handle: new grant, higher token.
        "C-D06" "K13" lease::a_lost_lock_can_be_taken_again_through_the_same_handle ALL [];
        /// After a pause past the lease's end, the first look is false, and the release returns in time.
        "C-D07" "K2 K10" stale::a_paused_holder_sees_the_end_at_its_first_look ALL [];
        /// `is_held` turns false by itself, with no task, timer or traffic to make it so.
        "C-D07b" "K2" lease::the_end_is_seen_without_any_background_task ONCE [];
        /// The time that remains is never more than the TTL or than the server keeps, and does not grow without a renewal.
        "C-D08" "K2" lease::what_remains_is_never_more_than_the_server_keeps ALL [INSPECT];
        /// A process that was stopped (SIGSTOP) past its lease sees the end at its first look; its token is refused at a gate, and the next holder
        /// keeps the lock.
        "C-D09" "K2 K4" process::a_process_that_stood_still_sees_the_end_at_its_first_look ALL [Need::Processes];
        /// A step of its wall clock by an hour in either direction costs a holder nothing, with permits too.
        "C-D10" "K2" process::a_holder_whose_wall_clock_is_stepped_by_an_hour_notices_nothing SIMPLE [Need::Processes];
        /// A contender that is let in at the end of a lease, and tries all the time, finds that the holder has ceased to believe; after a grant, and
        /// after an extension.
        "C-D11" "K1 K2" lease::at_the_end_of_a_lease_the_belief_ends_first ALL [];
    }
    "Renewal" {
        /// A renewed lock is held through many TTLs, while others try.
        "C-R01" "K12" renewal::a_renewed_lock_is_held_through_many_ttls ALL [];
        /// Five resets of its connections cost a holder nothing.
        "C-R02" "K12" outage::five_resets_cost_a_holder_nothing SIMPLE [Need::Links];
        /// 500 guards are renewed without a loss.
        "C-R03" "K12 K18" renewal::five_hundred_guards_are_renewed_without_a_loss SIMPLE [];
        /// Renewals that fail now and then cost a holder nothing.
        "C-R04" "K12" outage::a_renewal_that_fails_now_and_then_costs_nothing SIMPLE [Need::Links, Need::Replies];
        /// A renewal whose reply is late by a quarter of its lease counts from its sending: when the servers hear of no further one, no holder
        /// believes in its lock beside the next one.
        "C-R04b" "K2 K12" outage::a_renewal_counts_from_its_sending_however_late_its_reply SIMPLE [Need::Links];
        /// A release that races a renewal frees: 1,440 times, in lanes that drift across the renewal.
        "C-R05" "K3 K10" renewal::a_release_that_races_a_renewal_frees SIMPLE [];
        /// The lock of a client that is gone ends with its lease, also while another one tries all the time.
        "C-R06" "K2" renewal::the_lock_of_a_client_that_is_gone_ends_with_its_lease ALL [];
        /// A task that panics releases its lock.
        "C-R06b" "K8" renewal::a_task_that_panics_releases_its_lock ALL [];
        /// A holder learns within one renewal period that its entry is gone; the next holder's is untouched.
        "C-R07" "K3 K11" renewal::a_holder_learns_that_its_entry_is_gone SIMPLE [Need::Admin];
        /// A holder whose entry is gone, and for which nobody else asks, learns it within one renewal period, and no renewal writes the entry anew.
        "C-R07b" "K3 K12" renewal::a_renewal_does_not_bring_back_what_is_gone SIMPLE [Need::Admin];
        /// An extension by hand lengthens the lease and never shortens it.
        "C-R08" "K2" renewal::an_extension_by_hand_lengthens_and_never_shortens ALL [];
        /// An extension of a lease that is over is refused and revives nothing.
        "C-R08b" "K3 K12" renewal::an_extension_of_a_lease_that_is_over_is_refused ALL [];
        /// A shorter extension that is made at the same time as a longer one never shortens it, with 100 locks.
        "C-R08c" "K2" renewal::a_shorter_extension_never_shortens_a_longer_one SIMPLE [];
        /// Extensions by hand for less than is left, one after the other, put no renewal off.
        "C-R08d" "K2" renewal::short_extensions_put_no_renewal_off ALL [];
        /// A longest hold ends renewal: a leaked guard's lock becomes free.
        "C-R09" "K2" renewal::a_longest_hold_ends_renewal ALL [];
    }
    "Waiting" {
        /// A wait without limit ends with the release.
        "C-W01" "K5 K7" waiting::a_wait_without_limit_ends_with_the_release ALL [];
        /// A waiter is granted at the end of a dead lease.
        "C-W01b" "K5" waiting::a_waiter_follows_an_expiry ALL [];
        /// A wait of zero is a try.
        "C-W02" "K7" waiting::a_wait_of_zero_is_a_try ALL [];
        /// A wait of `Duration::MAX` does not overflow.
        "C-W03" "K7" waiting::the_longest_wait_does_not_overflow ALL [];
        /// The limit of a wait is one for the whole call, whatever predecessors come and go.
        "C-W04" "K7" waiting::the_limit_of_a_wait_is_one_for_the_whole_call ALL [];
        /// A wait of 50 ms ends in time, and not before.
        "C-W05" "K7" waiting::a_short_wait_ends_in_time ALL [];
        /// A waiter that gave up leaves nothing; the next in the queue is granted, and not before the release.
        "C-W06" "K5 K8" waiting::a_waiter_that_gave_up_leaves_nothing_in_the_way ALL [];
        /// 20 waiters are served in the order of their coming.
        "C-W07" "K5" waiting::waiters_are_served_in_the_order_of_their_coming ALL [FIFO];
        /// An acquisition that is dropped at any poll, of a free or a held lock, leaves nothing after its TTL + 1 s.
        "C-W08" "K8" cancel::an_acquisition_dropped_at_any_poll_leaves_nothing ALL [];
        /// An acquisition that was dropped or given up while the link was down leaves nothing when it is up again.
        "C-W09" "K8" outage::what_was_given_up_while_the_link_was_down_leaves_nothing SIMPLE [Need::Links];
        /// A cancellation at the instant of grant leaves a guard or nothing.
        "C-W10" "K8" cancel::a_cancellation_at_the_instant_of_grant_leaves_a_guard_or_nothing ALL [];
        /// Tries, waits with a limit and releases, 1,000 at once, at silent servers end within one operation timeout of it, each with an
        /// error, and none is late.
        "C-W11" "K7 K10" outage::silent_servers_hold_nobody_up_for_long SIMPLE [Need::Links];
        /// Of five waiters the first, the third, the last, or two cancel: the others keep their order.
        "C-W12" "K5 K8" waiting::a_waiter_that_cancels_does_not_change_the_order ALL [FIFO];
        /// A release between any two requests of a waiter is not missed: granted within 1 s.
        "C-W13" "K5" interposed::a_release_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links, Need::Requests];
        /// A predecessor that leaves between any two requests of a waiter is not missed: granted within 1 s.
        "C-W14" "K5" interposed::a_predecessor_that_leaves_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links, Need::Requests];
        /// A release wakes one waiter and not the herd.
        "C-W15" "K5" waiting::a_release_wakes_one_waiter_and_not_the_herd ALL [PUSH];
        /// 300 waits of one client need no task each, and leave nothing when they are dropped.
        "C-W16" "K18" cancel::many_waits_of_one_client_need_no_task_each SIMPLE [];
        /// On a runtime of one thread, other tasks run beside a wait.
        "C-W18" "K18" waiting::a_wait_leaves_the_only_thread_to_other_tasks ALL [];
        /// No waiter among 20 is starved by the others.
        "C-W19" "K5" waiting::no_waiter_is_starved_by_the_others ALL [];
        /// An event that a waiter is to be woken by is swallowed, on a link that is healthy: granted within 1 s of the release.
        "C-W20" "K5" swallowed::a_waiter_whose_event_is_swallowed_is_granted_within_a_second ALL [Need::Links, Need::Requests, PUSH];
        /// Each reply of a wait is swallowed once, on a link that is healthy: granted within 2 s of the release. Where replies come in turn, the
        /// connection is silent from it on, and one operation timeout comes on top.
        "C-W21" "K5" swallowed::a_waiter_one_of_whose_replies_is_swallowed_is_granted_within_two_seconds ALL [Need::Links, Need::Requests];
    }
}
