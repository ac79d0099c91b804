//! The one list of cases, under the headings under which `CASES.md` tells them.
//!
//! An entry declares and registers: the claim, its id, the promises that it proves, the function, the forms in which the
//! lock is met, and what else is needed. A, B, C are owners in different clients; the TTL is 2 s unless said; "free" means that
//! the servers have nothing left.

use lock_core::Guarantee;

use super::{
    Case, adoption, cancel, foreign, forgetting, interposed, lease, leave, mutex, naming, observe, outage, process,
    record, record_survival, reentrant, refusals, renewal, replies, runtimes, rwlock, semaphore, servers, session,
    several, stale, swallowed, waiting,
};
use crate::abilities::Need;
use crate::adapters::{ALL, FENCED, ONCE, SIMPLE};
use crate::harness::ServerFault;

macro_rules! cases {
    ($($heading:literal {
        $($(#[doc = $claim:literal])+ $id:literal $proves:literal $file:ident::$name:ident $forms:ident [$($need:expr),*];)+
    })+) => {
        /// Every case.
        pub(crate) const CASES: &[Case] = &[$($(Case {
            #[cfg(test)]
            heading: $heading,
            #[cfg(test)]
            claim: concat!($($claim),+),
            id: $id,
            #[cfg(test)]
            proves: $proves,
            name: stringify!($name),
            forms: $forms,
            needs: &[$($need),*],
            run: |cx| Box::pin($file::$name(cx)),
        }),+),+];
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
const RECORD: Need = Need::Promise(Guarantee::Record);
const ADOPTION: Need = Need::Promise(Guarantee::Adoption);
const LEAVE: Need = Need::Promise(Guarantee::Leave);

cases! {
    "Mutex" {
        /// A grant is shown with its nonce while it is held, and not afterwards.
        "C-M01" "K3 K16" mutex::a_grant_is_visible_with_its_nonce_until_its_release ALL [INSPECT];
        /// While A holds, B's try says `Ok(None)` within one operation timeout, and nothing of B remains.
        "C-M02" "K1 K7 K8" mutex::a_try_while_held_is_refused_and_leaves_nothing ALL [];
        /// Of 64 owners that try at once, exactly one is granted and 63 are refused definitely.
        "C-M03" "K1 K3" mutex::sixty_four_racers_get_exactly_one_grant ALL [];
        /// 16 owners take 200 turns each: never two inside, and the counter is exact (in other forms, 8 of 40).
        "C-M04" "K1 K5" mutex::owners_that_take_turns_never_overlap_nor_lose_a_count ALL [];
        /// 100 tasks share one handle; each releases only its own grant.
        "C-M05" "K3" mutex::tasks_that_share_one_handle_release_only_their_own_grant ALL [];
        /// Nonces are unique, and every one of their 128 bits is random.
        "C-M06" "K3" mutex::nonces_are_unique_and_use_every_bit ONCE [];
        /// A waits, B releases: A is granted within 1 s.
        "C-M07" "K5" mutex::a_release_hands_the_lock_to_the_waiter ALL [];
        /// A holder that tries again is refused at once.
        "C-M08" "K7 K15" mutex::a_holder_that_tries_again_is_refused_rather_than_stuck ALL [];
        /// A dropped guard is released in the background within 1 s; that is no loss.
        "C-M09" "K8" mutex::a_dropped_guard_is_released_in_the_background ALL [];
        /// A client that drops a guard, or a try before its end, is granted the lock by its next try.
        "C-M09b" "K8" mutex::a_try_behind_what_its_client_dropped_is_granted ALL [];
        /// Freeing a grant that never was, or is gone, says so and changes nothing.
        "C-M10" "K3 K16" mutex::freeing_a_grant_that_is_not_there_changes_nothing ALL [FORCE];
        /// Releasing a grant whose entry the server lost is `NotHeld`; the next holder keeps the lock.
        "C-M10b" "K3 K10" mutex::a_release_of_what_the_server_lost_is_not_held SIMPLE [Need::Admin];
        /// A is paused past its lease and B holds: A's late release is `NotHeld`, B's entry is untouched.
        "C-M11" "K3 K10" stale::a_late_release_does_not_free_the_next_holder ALL [];
        /// A release at the edge of its lease's end never frees the next holder.
        "C-M11b" "K3" stale::a_release_at_the_edge_of_expiry_does_not_free_the_next_holder ALL [];
        /// A release whose reply was lost, and which its client repeats, does not free the next hold.
        "C-M12" "K3 K9" replies::a_release_that_is_repeated_does_not_free_the_next_hold SIMPLE [Need::Links];
        /// A release whose reply is lost is done or `Indeterminate`, frees within 1 s, and the same client can go on.
        "C-M13" "K9 K10" replies::a_release_whose_reply_is_lost_frees_and_says_that_it_does_not_know SIMPLE [Need::Links];
        /// A release whose future is dropped before its reply still frees the lock within 1 s.
        "C-M14" "K8 K10" mutex::a_release_that_is_dropped_before_its_reply_still_frees ALL [];
        /// Locks of similar names are independent.
        "C-M15" "K14" mutex::locks_of_similar_names_are_independent SIMPLE [];
        /// One name in two namespaces is two locks; in one namespace it is one.
        "C-M16" "K14" mutex::namespaces_are_independent_and_one_namespace_is_exclusive SIMPLE [];
        /// The lock of a process killed by SIGKILL is free after its TTL + 1 s at the latest, and not at once.
        "C-M17" "K1 K2" process::the_lock_of_a_killed_process_is_free_after_its_ttl ALL [Need::Processes];
        /// The lock of a process that ended without a release is free after its TTL + 1 s at the latest.
        "C-M18" "K2" process::the_lock_of_a_process_that_ended_is_free_after_its_ttl ALL [Need::Processes];
        /// A forced release frees the lock, and its holder is told within one renewal period.
        "C-M19" "K11 K16" mutex::a_forced_release_frees_the_lock_and_tells_its_holder ALL [FORCE];
        /// A grant whose reply comes after its lease is refused; who holds by then keeps the lock.
        "C-M20" "K2 K9" replies::a_grant_that_comes_after_its_lease_is_refused SIMPLE [Need::Links];
        /// Fencing tokens grow with every grant, also after the entry was deleted and clients were replaced.
        "C-M24" "K4" stale::tokens_grow_with_every_grant FENCED [FENCING];
        /// A gate at the resource admits every holder, and no late one.
        "C-M25" "K4" stale::a_gate_admits_every_holder_and_no_late_one FENCED [FENCING];
    }
    "Reentrant" {
        /// An owner that holds enters again: depth 2, the same grant and token.
        "C-RE01" "K4" reentrant::an_owner_enters_again_with_the_same_token ONCE [Need::Reentrant];
        /// One owner enters from two clients; the lock is free only after both left.
        "C-RE01b" "K3" reentrant::one_owner_enters_from_two_clients ONCE [Need::Reentrant, SHARED_OWNER];
        /// Only the third of three releases frees.
        "C-RE02" "K3" reentrant::only_the_last_of_three_releases_frees ONCE [Need::Reentrant];
        /// B, waiting for A at depth 2, enters only after A's last release.
        "C-RE03" "K1" reentrant::a_waiter_enters_only_after_the_last_release ONCE [Need::Reentrant];
        /// Another owner of the same client is refused.
        "C-RE04" "K1" reentrant::another_owner_of_the_same_client_is_refused ONCE [Need::Reentrant];
        /// A nested lock with a shorter TTL never shortens the outer lease.
        "C-RE05" "K2" reentrant::a_nested_lock_never_shortens_the_outer_lease ONCE [Need::Reentrant];
        /// An owner whose first grant was not answered is inside once after the next: one release frees.
        "C-RE06" "K9" replies::an_owner_whose_first_grant_was_not_answered_is_inside_once ONCE [Need::Reentrant, Need::Links];
        /// Depth 2 is kept through several TTLs by renewal.
        "C-RE07" "K12" reentrant::depth_two_is_kept_alive_by_renewal ONCE [Need::Reentrant];
        /// A level beyond the limit is refused with `InvalidArgument`; the depth stays.
        "C-RE08" "K15" reentrant::a_level_beyond_the_limit_is_refused ONCE [Need::Reentrant];
        /// A former owner's release is `NotHeld` and does not touch the next owner's depth.
        "C-RE09" "K3 K10" reentrant::a_former_owner_s_release_does_not_touch_the_next_one ONCE [Need::Reentrant];
        /// A loss is told on every level; both releases are `NotHeld`; the owner begins again at depth 1.
        "C-RE10" "K11 K13" reentrant::a_loss_is_told_on_every_level ONCE [Need::Reentrant];
    }
    "Read-write" {
        /// Two readers hold together.
        "C-RW01" "K1" rwlock::two_readers_hold_together ONCE [Need::RwLock];
        /// A reader keeps writers out, a writer readers.
        "C-RW02" "K1" rwlock::a_reader_keeps_writers_out_and_a_writer_readers ONCE [Need::RwLock];
        /// A writer keeps writers out.
        "C-RW03" "K1" rwlock::a_writer_keeps_writers_out ONCE [Need::RwLock];
        /// With 10 readers and 3 writers, no read is torn and no write is lost.
        "C-RW04" "K1" rwlock::no_read_is_torn_and_no_write_is_lost ONCE [Need::RwLock];
        /// A reader behind a waiting writer waits: the order is reader, writer, reader.
        "C-RW05" "K5" rwlock::a_reader_behind_a_waiting_writer_waits ONCE [Need::RwLock, FIFO];
        /// A stream of overlapping readers does not starve a writer.
        "C-RW06" "K5" rwlock::a_stream_of_readers_does_not_starve_a_writer ONCE [Need::RwLock];
        /// A handle with an owner refuses an upgrade with `Unsupported`, at once.
        "C-RW07" "K15" rwlock::an_upgrade_is_refused_at_once ONCE [Need::RwLock];
        /// A downgrade leaves no gap for a waiting writer.
        "C-RW08" "K1" rwlock::a_downgrade_leaves_no_gap_for_a_waiting_writer ONCE [Need::RwLock];
        /// A downgraded lock keeps its grant and token and admits readers; any order of release works.
        "C-RW09" "K4" rwlock::a_downgraded_lock_keeps_its_grant_and_admits_readers ONCE [Need::RwLock];
        /// The end of a reader's short lease leaves another reader its long one.
        "C-RW10" "K2" rwlock::a_short_reader_s_end_leaves_the_long_one_its_lease ONCE [Need::RwLock];
        /// A dead reader among live ones delays a writer by at most its TTL + 1 s.
        "C-RW11" "K6" rwlock::a_dead_reader_among_live_ones_delays_a_writer_by_its_ttl ONCE [Need::RwLock];
        /// All readers that wait behind a writer enter together.
        "C-RW12" "K5" rwlock::readers_behind_a_writer_enter_together ONCE [Need::RwLock];
        /// Readers behind a writer that gave up proceed.
        "C-RW13" "K5 K8" rwlock::readers_behind_a_writer_that_gave_up_proceed ONCE [Need::RwLock];
        /// A writer's token is above every earlier one, a reader's at least the last writer's.
        "C-RW14" "K4" rwlock::a_writer_s_token_is_above_every_earlier_one ONCE [Need::RwLock, FENCING];
        /// A reader and a writer that came after it wait for a writer: it leaves, and both are served, each within 1 s of the one before; first the
        /// reader where there is a queue.
        "C-RW15" "K5" rwlock::a_reader_and_a_writer_behind_it_do_not_wait_for_each_other ONCE [Need::RwLock];
        /// A downgrade whose reply is lost is done when it is asked again, before or after a renewal.
        "C-RW16" "K9 K12" replies::a_downgrade_whose_reply_is_lost_is_done_when_it_is_asked_again ONCE [Need::RwLock, Need::Links];
        /// A downgrade keeps the length of a lease that was extended by hand.
        "C-RW17" "K1 K2" rwlock::a_downgrade_keeps_the_length_of_an_extended_lease ONCE [Need::RwLock];
        /// A write lease that ends while its downgrade is under way leaves nothing behind.
        "C-RW18" "K2 K8" replies::a_write_lease_that_ends_during_its_downgrade_leaves_nothing ONCE [Need::RwLock, Need::Links];
        /// A downgrade leaves no gap for a waiting writer, also if each of its replies is late.
        "C-RW19" "K1" rwlock::a_downgrade_leaves_no_gap_however_late_its_replies ONCE [Need::RwLock, Need::Links];
        /// One of six readers is freed by force: it is told, once, and the others keep the lock.
        "C-RW20" "K3 K11 K16" rwlock::one_reader_that_is_freed_by_force_costs_the_others_nothing ONCE [Need::RwLock, FORCE];
        /// Inspection shows a reader as holder and the writer behind it as waiter, and then the writer as holder.
        "C-RW21" "K16" rwlock::a_writer_that_waits_is_shown_behind_the_reader_that_holds ONCE [Need::RwLock, INSPECT];
        /// A downgrade lets the reader in that waits in front of a writer, and both readers are renewed.
        "C-RW22" "K1 K12" rwlock::a_downgrade_lets_waiting_readers_in_and_is_renewed ONCE [Need::RwLock];
    }
    "Semaphore" {
        /// A fourth of three permits is refused.
        "C-S01" "K1" semaphore::a_fourth_of_three_permits_is_refused ONCE [Need::Semaphore];
        /// Of 12 owners no more than three are inside, and at times three are.
        "C-S02" "K1" semaphore::no_more_than_three_of_twelve_owners_are_inside ONCE [Need::Semaphore];
        /// One released permit admits one waiter, not two.
        "C-S03" "K5" semaphore::one_released_permit_admits_one_waiter ONCE [Need::Semaphore];
        /// An expired permit's release is `NotHeld` and makes no permit free.
        "C-S04" "K3" semaphore::a_grant_is_released_once ONCE [Need::Semaphore];
        /// Freeing an unknown grant makes no permit free.
        "C-S04b" "K3" semaphore::freeing_an_unknown_grant_frees_no_permit ONCE [Need::Semaphore, FORCE];
        /// 1,000 refused tries leave nothing.
        "C-S05" "K8" semaphore::a_thousand_refused_tries_leave_nothing ONCE [Need::Semaphore];
        /// The permits of dead holders are back after their TTL + 1 s.
        "C-S06" "K2" semaphore::permits_of_dead_holders_come_back ONCE [Need::Semaphore];
        /// A part that is released is exactly that part; a waiter for many is served when there are enough.
        "C-S07" "K3" semaphore::a_part_that_is_released_is_exactly_that_part ONCE [Need::Semaphore];
        /// A waiter that is cancelled at any poll leaks no permit.
        "C-S08" "K8" semaphore::a_cancelled_waiter_leaks_no_permit ONCE [Need::Semaphore];
        /// An expired permit does not keep live ones, released together with it, from being freed.
        "C-S09" "K3" semaphore::an_expired_permit_does_not_keep_live_ones_from_being_freed ONCE [Need::Semaphore];
        /// Clients that disagree on the limit are told (`LimitMismatch`), until nobody is inside.
        "C-S10" "K15" semaphore::clients_that_disagree_on_the_limit_are_told ONCE [Need::Semaphore, LIMIT];
        /// Owners that ask for two of three permits over and over never deadlock and never get one.
        "C-S12" "K1" semaphore::owners_that_ask_for_two_of_three_never_deadlock ONCE [Need::Semaphore];
        /// A limit of zero, no permits, or more than all are refused; a limit of `u32::MAX` is kept.
        "C-S13" "K15" semaphore::senseless_numbers_of_permits_are_refused ONCE [Need::Semaphore];
        /// Inspection shows as free and as held what can be taken and was given.
        "C-S15" "K16" semaphore::what_is_shown_as_free_can_be_taken ONCE [Need::Semaphore, INSPECT];
        /// A release of some permits of which the request or the reply is lost is carried through, and costs the others nothing.
        "C-S16" "K9 K12" replies::permits_whose_release_is_not_answered_do_not_end_the_others ONCE [Need::Semaphore, Need::Links];
        /// Owners that take one permit again and again do not starve one that asks for all.
        "C-S17" "K5" semaphore::a_request_for_all_is_not_overtaken_by_a_stream_of_small_ones ONCE [Need::Semaphore, FIFO];
    }
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
        "C-R04" "K12" outage::a_renewal_that_fails_now_and_then_costs_nothing SIMPLE [Need::Links];
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
        "C-W13" "K5" interposed::a_release_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links];
        /// A predecessor that leaves between any two requests of a waiter is not missed: granted within 1 s.
        "C-W14" "K5" interposed::a_predecessor_that_leaves_between_two_requests_of_a_waiter_is_not_missed SIMPLE [Need::Links];
        /// A release wakes one waiter and not the herd.
        "C-W15" "K5" waiting::a_release_wakes_one_waiter_and_not_the_herd ALL [PUSH];
        /// 300 waits of one client need no task each, and leave nothing when they are dropped.
        "C-W16" "K18" cancel::many_waits_of_one_client_need_no_task_each SIMPLE [];
        /// On a runtime of one thread, other tasks run beside a wait.
        "C-W18" "K18" waiting::a_wait_leaves_the_only_thread_to_other_tasks ALL [];
        /// No waiter among 20 is starved by the others.
        "C-W19" "K5" waiting::no_waiter_is_starved_by_the_others ALL [];
        /// An event that a waiter is to be woken by is swallowed, on a link that is healthy: granted within 1 s of the release.
        "C-W20" "K5" swallowed::a_waiter_whose_event_is_swallowed_is_granted_within_a_second ALL [Need::Links, PUSH];
        /// Each reply of a wait is swallowed once, on a link that is healthy: granted within 2 s of the release. Where replies come in turn, the
        /// connection is silent from it on, and one operation timeout comes on top.
        "C-W21" "K5" swallowed::a_waiter_one_of_whose_replies_is_swallowed_is_granted_within_two_seconds ALL [Need::Links];
    }
    "Faults" {
        /// Servers that stand still for longer than a lease let no two in: the holder is told in time, the waiter is granted afterwards.
        "C-F02" "K1 K2 K11" outage::servers_that_stand_still_longer_than_a_lease_let_no_two_in SIMPLE [Need::Links];
        /// A waiter that stands still (SIGSTOP) across its turn is passed over; it believes in no grant, and is granted later.
        "C-F03" "K6" process::a_waiter_that_stands_still_across_its_turn_is_passed_over ALL [Need::Processes];
        /// A holder that is heard but hears nothing, its link dead in one direction only, is told by its deadline, without any event, and the lock is
        /// free afterwards.
        "C-F04" "K2 K11" outage::a_holder_that_is_heard_but_hears_nothing_is_told_by_its_deadline ONCE [Need::Links];
        /// An acquisition whose reply is lost has no second effect: it recognises its grant or says that it does not know, and leaves nothing after
        /// its TTL + 1 s.
        "C-F05" "K9" replies::an_acquisition_whose_reply_is_lost_has_no_second_effect SIMPLE [Need::Links];
        /// An acquisition that is dropped before its reply, on a link that is late and healthy again, is undone within 1 s, although its lease is
        /// long; the next try of the same client is granted.
        "C-F05b" "K8 K9" replies::an_acquisition_that_is_dropped_before_its_reply_is_undone_at_once SIMPLE [Need::Links];
        /// The session of a holder ends while another one waits, who is granted; the former holder's late release is not done, and does not touch
        /// what the next one has.
        "C-F07" "K3 K10" session::a_former_holder_s_late_release_does_not_touch_what_a_new_session_has SIMPLE [Need::Sessions];
        /// A waiter whose session ends is granted in its turn, not before, and nobody is let in beside it.
        "C-F08" "K5 K6" session::a_waiter_whose_session_ends_is_granted_in_its_turn_and_with_a_place SIMPLE [Need::Sessions];
        /// The server that leads is killed, and another one takes over, where that is promised to cost nobody a lock: the holder keeps its own, and
        /// those who wait are granted in their order after its release.
        "C-F09" "K1 K5" servers::a_failover_costs_no_holder_its_lock_and_no_waiter_its_place ONCE
            [Need::DisposableServer(ServerFault::FailOver), Need::Always(Guarantee::ExclusionAcrossFailover)];
        /// The first and a middle waiter are killed (SIGKILL): the one behind them is granted within 6 s.
        "C-F10" "K6" process::waiters_that_are_killed_delay_the_next_one_by_a_bound ALL [Need::Processes];
        /// Links that are cut 50 times while one holds and one waits work in the end.
        "C-F11" "K12" outage::a_link_that_is_cut_fifty_times_works_in_the_end ONCE [Need::Links];
        /// The entry is deleted while one holds and one waits: the waiter is granted, the holder told.
        "C-F12" "K5 K11" waiting::a_waiter_follows_the_deletion_of_the_entry SIMPLE [Need::Admin];
        /// A server is killed and started again with what it had written: while all kinds are contended for, nobody meets an error that belongs to
        /// something else, and everybody goes on; a holder keeps its lock, or has ceased to believe before somebody else is let in, where that is
        /// promised. Tokens do not go back where that is promised.
        "C-F13" "K1 K4 K15" forgetting::a_restart_lets_nobody_in_beside_a_holder_and_everybody_goes_on ONCE [Need::DisposableServer(ServerFault::Restart)];
        /// A server is killed and started again with nothing: everybody goes on; a holder is told within a lease, and its late release does not touch
        /// the next one's lock.
        "C-F13b" "K11" forgetting::a_restart_without_its_data_is_no_secret ONCE [Need::DisposableServer(ServerFault::Restart)];
        /// A server's wall clock is put back by a minute: while all kinds are contended for, never two inside and everybody goes on; a holder keeps
        /// its lock beyond a lease, and its waiter is granted after the release.
        "C-F15" "K1" servers::a_server_s_clock_that_is_put_back_costs_nobody_a_lock ONCE [Need::DisposableServer(ServerFault::ClockStep)];
        /// A server's wall clock is put forward by half a minute, which ends leases that are running: a holder is told within one renewal period,
        /// does not take the lock back from the next one, and a gate lets no update be lost. While all kinds are contended for, whoever is inside at
        /// the step may meet one more, and who comes in afterwards nobody.
        "C-F15b" "K4 K11" servers::a_server_s_clock_that_is_put_forward_is_no_secret ONCE [Need::DisposableServer(ServerFault::ClockStep)];
        /// The server that leads is killed twice, and another one takes over, while all kinds are contended for: no call hangs, nobody meets an error
        /// that belongs to another request, everybody has turns again. Where that is promised, never two are inside, and no token goes back.
        "C-F17" "K7 K15" servers::failovers_let_no_call_hang_and_everybody_goes_on ONCE [Need::DisposableServer(ServerFault::FailOver)];
        /// A server forgets everything while it runs: everybody goes on; a holder is told within a lease, and its late release does not touch the
        /// next one's lock.
        "C-F18" "K11" forgetting::what_servers_forget_while_they_run_is_no_secret ONCE [Need::DisposableServer(ServerFault::Flush)];
        /// Replies that are cut in the middle reach nobody else: of several acquisitions on one connection, each has the outcome that it was given.
        "C-F19" "K9 K15" replies::replies_that_are_cut_in_the_middle_reach_nobody_else SIMPLE [Need::Links];
        /// A server refuses one request (it is loading, read-only, out of memory, or knows the client's rights no more): an acquisition says so and
        /// leaves nothing, a renewal costs no lock, a release comes about all the same.
        "C-F20" "K10 K15" refusals::what_servers_refuse_is_told_and_costs_nobody_a_lock ONCE [Need::Refusals];
        /// A server takes no connections: new clients are told, and those who are connected go on. It takes them and ends them at once: who has lost
        /// its connection asks again now and then, without a storm. When it takes them again, all goes on.
        "C-F21" "K15" refusals::servers_that_take_no_connections_are_not_stormed ONCE [Need::Links];
    }
    "Names and input" {
        /// Odd names (Unicode, control characters, separators, patterns, one byte) work and do not collide.
        "C-N01" "K14" naming::odd_names_work_and_do_not_collide SIMPLE [];
        /// Names that differ only in case are two.
        "C-N02" "K14" naming::names_that_differ_only_in_case_are_two SIMPLE [];
        /// Senseless durations are refused with `InvalidArgument`; odd ones work.
        "C-N03" "K7 K15" naming::senseless_durations_are_refused_and_odd_ones_work ALL [];
        /// Empty and overlong names are refused; names of 1,024 bytes work and are told apart at their ends.
        "C-N04" "K14" naming::empty_and_overlong_names_are_refused_and_long_ones_work SIMPLE [];
        /// 1,000 random names are independent.
        "C-N05" "K14" naming::a_thousand_random_names_are_independent SIMPLE [];
        /// Foreign garbage in a lock's place is a typed error (`Protocol`), and its removal cures it.
        "C-N06" "K15" naming::foreign_garbage_in_its_place_is_a_typed_error ONCE [Need::Admin];
        /// Callers that name several locks in different orders never deadlock.
        "C-N08" "K7" naming::callers_that_name_locks_in_different_orders_never_deadlock ONCE [];
        /// All kinds of one name are independent.
        "C-N11" "K14" naming::kinds_of_one_name_do_not_collide ONCE [];
    }
    "Operators and costs" {
        /// Inspection shows the holder with owner, times and token, and the queue.
        "C-O01" "K16" observe::inspection_shows_the_holder_and_the_queue ALL [INSPECT];
        /// An operator frees exactly the grant that is shown.
        "C-O01b" "K16" observe::an_operator_frees_exactly_the_named_grant ALL [INSPECT, FORCE];
        /// Grants, refusals, losses by reason, waits and holds are counted and measured, each exactly once.
        "C-O02" "K17" observe::meters_move_by_exactly_what_happened ALL [];
        /// The time from a push to the guard of the waiter that it woke is measured, once, and no other grant's.
        "C-O02b" "K17" observe::a_push_is_measured_until_its_guard ALL [PUSH];
        /// An error names lock, backend and phase, and carries the reason of a loss.
        "C-O03" "K15" observe::an_error_names_lock_backend_and_phase ALL [];
        /// An acquisition that is granted, refused or dropped closes its span, with its outcome; so does a release.
        "C-O04" "K17" observe::every_acquisition_closes_its_span_with_its_outcome ALL [];
        /// Inspection shows whether a lock is free: before, held, released, read, expired.
        "C-O05" "K16" observe::whether_a_lock_is_free_is_shown_as_it_is SIMPLE [INSPECT];
        /// 1,001 locks cost as many tasks as one.
        "C-L01" "K18" observe::a_thousand_locks_cost_as_many_tasks_as_one SIMPLE [];
        /// 1,000 failed tries leave the servers as they were.
        "C-L02" "K8" observe::a_thousand_failed_tries_leave_the_servers_as_they_were ALL [Need::GroundTruth];
        /// A client that is gone with its guards and waits leaves neither entries nor tasks.
        "C-L03" "K8 K18" observe::a_client_that_is_gone_leaves_neither_entries_nor_tasks SIMPLE [];
        /// A client that was closed has freed what its dropped guards held; it takes no lock any more.
        "C-L03b" "K8" observe::a_client_that_is_closed_has_released_everything ALL [];
        /// A guard that is dropped outside of any runtime releases its lock; a client is dropped there without harm.
        "C-L07" "K8" runtimes::guards_and_clients_may_be_dropped_outside_of_any_runtime ALL [];
        /// A handle works on a second runtime, and its guard is renewed when that one has ended.
        "C-L07b" "K12" runtimes::a_handle_works_on_another_runtime_and_after_it_has_ended SIMPLE [];
        /// A loss is told within 100 ms of the deadline on another runtime, when the one has ended on which the client was made.
        "C-L07c" "K11" runtimes::a_loss_is_told_elsewhere_when_the_client_s_runtime_has_ended SIMPLE [];
        /// A guard that is held on another runtime is renewed there, when the one has ended on which the client was made.
        "C-L07d" "K12" runtimes::a_guard_is_renewed_elsewhere_when_the_client_s_runtime_has_ended SIMPLE
            [Need::Always(Guarantee::RenewalAcrossRuntimes)];
    }
    "Clients of other libraries" {
        /// A foreign holder of a shared key keeps us out.
        "C-I01" "K1 K14" foreign::a_foreign_holder_keeps_us_out ONCE [Need::Foreign, FOREIGN];
        /// Our holder of a shared key keeps foreign clients out, renewals included.
        "C-I02" "K1 K14" foreign::our_holder_keeps_foreign_clients_out ONCE [Need::Foreign, FOREIGN];
        /// Our waiter is granted within 1 s of a foreign release.
        "C-I03" "K5" foreign::our_waiter_follows_a_foreign_release ONCE [Need::Foreign, FOREIGN];
        /// Our queue does not starve a foreign client.
        "C-I04" "K5" foreign::our_queue_does_not_starve_a_foreign_client ONCE [Need::Foreign, FOREIGN];
        /// Foreign clients that take the key again and again, and leave it free for moments only, do not starve our queue.
        "C-I05" "K5" foreign::foreign_clients_do_not_starve_our_queue ONCE [Need::Foreign, FOREIGN];
    }

    "Record" {
        /// What A writes, bytes of any value and none, is read by B and found by the next holder, whose token stamps the record at once.
        "C-RC01" "K4 K14" record::what_a_holder_writes_is_read_by_all_and_found_by_the_next ONCE [RECORD];
        /// 1,024 bytes are kept as they are; 1,025 are `InvalidArgument`, and the record stays as it was.
        "C-RC02" "K15" record::a_kibibyte_fits_and_one_byte_more_is_refused ONCE [RECORD];
        /// Names and namespaces have records of their own.
        "C-RC03" "K14" record::names_and_namespaces_have_records_of_their_own ONCE [RECORD];
        /// A holder that ends before its first write leaves the data of the term before, and everybody can tell.
        "C-RC04" "K4 K8" record::a_holder_that_ends_before_it_writes_leaves_the_data_of_a_term_before ONCE [RECORD];
        /// A's grant is freed by force and B takes the lock: A's next write is `Lost`, changes nothing, and A believes no more.
        "C-RC05" "K3 K4" record::a_holder_that_was_freed_by_force_writes_nothing_more ONCE [RECORD, FORCE];
        /// Each request of A's write is held up until A's lease is over and B has the lock: it changes nothing, whether B has written
        /// or not.
        "C-RC06" "K3 K4" record::a_write_that_arrives_after_the_next_grant_changes_nothing ONCE [RECORD, Need::Links];
        /// Each reply to a write is lost: the write is done or not known to be, never told as definitely undone, and can be repeated.
        "C-RC07" "K9" record::a_write_whose_reply_is_lost_is_done_or_unknown_and_can_be_repeated ONCE [RECORD, Need::Links];
        /// Each reply to a write is lost, and the grant freed by force before the client connects again: if the data is there, the
        /// write is not told as definitely undone.
        "C-RC08" "K9" record::a_write_whose_reply_is_lost_with_its_grant_is_not_told_as_undone ONCE [RECORD, FORCE, Need::Links];
        /// A server is killed and started again with what it had written, when A has gone, and again while B holds: where that is promised, the
        /// record is as it was written last, by a write that was told as done; otherwise it may be gone. The next holder finds it, and writes.
        "C-RC09" "K4" record_survival::a_record_is_found_after_a_restart ONCE [RECORD, Need::DisposableServer(ServerFault::Restart)];
        /// A server is killed and started again with nothing while A holds: B finds no record, and A writes nothing beside B.
        "C-RC10" "K3 K4" record_survival::a_former_holder_writes_nothing_after_a_restart_without_data ONCE [RECORD, Need::DisposableServer(ServerFault::Restart)];
        /// A server forgets everything while A holds: B finds no record, and A writes nothing beside B.
        "C-RC10b" "K3 K4" record_survival::a_former_holder_writes_nothing_after_a_flush ONCE [RECORD, Need::DisposableServer(ServerFault::Flush)];
        /// The server that leads is killed, and another one takes over, when A has gone, and again while B holds: as C-RC09.
        "C-RC11" "K4" record_survival::a_record_is_found_after_a_failover ONCE [RECORD, Need::DisposableServer(ServerFault::FailOver)];
        /// A's grant is freed by force, and B takes the mutex without the record: A's next write is `Lost`, changes nothing, and A believes no
        /// more.
        "C-RC12" "K3 K4" record::a_holder_before_a_plain_one_that_was_freed_by_force_writes_nothing_more ONCE [RECORD, FORCE];
        /// The first request of A's write is held up until A's grant was freed by force and B has taken the mutex without the record: it
        /// changes nothing.
        "C-RC12b" "K3 K4" record::a_write_that_arrives_after_a_plain_grant_changes_nothing ONCE [RECORD, FORCE, Need::Links];
    }

    "Adoption" {
        /// A detaches its mutex, and B adopts it: it is never free in between, keeps its token, is renewed by B, and free after B's release.
        "C-AD01" "K1 K4" adoption::a_detached_mutex_goes_on_in_the_client_that_adopts_it ONCE [ADOPTION];
        /// B and C adopt one detached mutex at once: one has it, the other one is told `NotHeld`, and so is whoever comes later.
        "C-AD02" "K1 K3" adoption::a_message_that_is_delivered_to_several_is_adopted_once ONCE [ADOPTION];
        /// A detached mutex that nobody adopts is taken until its lease ends, and free 1 s later at the latest; an adoption comes too late then, and
        /// harms nobody.
        "C-AD03" "K2 K3" adoption::a_detached_mutex_that_nobody_adopts_ends_with_its_lease ONCE [ADOPTION];
        /// Each request of an adoption, or its reply, is lost: it is adopted, or that is not known, or the message is still good for another
        /// client; and nothing stays.
        "C-AD04" "K8 K9" adoption::an_adoption_whose_request_or_reply_is_lost_is_done_or_unknown ONCE [ADOPTION, Need::Links];
        /// A server refuses one request of an adoption, perhaps after a lost reply: it is adopted, or that is not known, or the message is still good for another client;
        /// and nothing stays.
        "C-AD04b" "K8 K9" adoption::a_refused_request_of_an_adoption_leaves_it_done_or_unknown_or_the_message_good ONCE [ADOPTION, Need::Links, Need::Refusals];
        /// Where grants cannot be passed on, a detachment is `Unsupported`, and its guard holds on; an adoption is `Unsupported`, too, and changes
        /// nothing.
        "C-AD05" "K15" adoption::what_cannot_be_passed_on_is_unsupported_and_holds_on ONCE [Need::Without(Guarantee::Adoption)];
    }
    "Leaving" {
        /// A leaves its mutex for 1 s of a lease of 6 s: nobody has it before, and B soon after; the end of A's hold is told.
        "C-LV01" "K1 K2" leave::a_lock_that_was_left_for_less_than_its_lease_is_free_after_that_time ONCE [LEAVE];
        /// A leaves its mutex for three times its lease: nobody has it before that time is over, and B soon after.
        "C-LV02" "K1 K2" leave::a_lock_that_was_left_for_more_than_its_lease_is_taken_for_that_time ONCE [LEAVE];
        /// B waits while A leaves its mutex for 1 s of a lease of 6 s: B is granted it when it ends.
        "C-LV03" "K5 K7" leave::whoever_waits_for_a_lock_that_was_left_is_granted_it_when_it_ends ONCE [LEAVE];
        /// A leaves its mutex, and closes its client: the mutex is taken for the time for which it was left.
        "C-LV04" "K1" leave::a_lock_that_was_left_outlasts_its_client ONCE [Need::Always(Guarantee::Leave)];
        /// A's mutex was freed by force, or its entry deleted, and B has it: A is told of the loss when it leaves the lock, and B's is not touched.
        "C-LV05" "K3 K11" leave::a_lock_that_was_lost_cannot_be_left_and_nobody_elses_is_touched ONCE [LEAVE, FORCE];
        /// `inspect` shows a mutex that was left, under another id than before if the servers end it, and by that it can be freed by force.
        "C-LV06" "K16" leave::a_lock_that_was_left_is_shown_and_can_be_freed_by_force ONCE [LEAVE, INSPECT, FORCE];
        /// Each request of A, who leaves its mutex for less than its lease, or for more, is lost, or its reply: it is left, or that is not known,
        /// and the client goes on; nobody has the mutex before, and B at most one operation timeout later than without a loss. Nothing stays.
        "C-LV07" "K9 K10" leave::a_request_to_leave_a_lock_that_is_lost_or_its_reply_is_sent_again ONCE [LEAVE, Need::Links];
        /// A leaves its mutex for no time, or for ever: that is refused, and A holds it as before.
        "C-LV08" "K15" leave::a_time_out_of_range_is_refused_and_the_lock_is_held_on ONCE [LEAVE];
    }
    "Several at once" {
        /// A holds three locks at once, the last a write lock where there is one: each has a nonce and, where there are tokens, a token of its
        /// own, is refused to B, is renewed, and can be released by itself.
        "C-ML01" "K1 K3 K4" several::several_locks_are_each_held_by_a_grant_of_its_own ONCE [];
        /// A holds one of three, each in turn: B's try of all three says `Ok(None)`, the other two are free, and a wait that ends leaves them free,
        /// too.
        "C-ML02" "K1 K7 K8" several::a_try_of_several_one_of_which_is_held_leaves_nothing ONCE [];
        /// Four clients try two of three locks again and again: never do two hold one lock at once, whoever waits is granted, and nothing
        /// is left.
        "C-ML03" "K1 K5" several::clients_that_try_overlapping_sets_never_hold_one_lock_at_once ONCE [];
        /// B waits for three locks, two of which A holds and releases one after the other: B is granted all of them.
        "C-ML04" "K5 K7" several::whoever_waits_for_several_is_granted_all_of_them_in_the_end ONCE [];
        /// A try of three free locks that is dropped at any poll leaves nothing after its TTL + 1 s.
        "C-ML05" "K8" several::a_try_of_several_that_is_dropped_at_any_poll_leaves_nothing ONCE [];
        /// Each request of a try of three free locks, or its reply, is lost: all are granted, or nothing stays, and nothing is told as certain that
        /// is not.
        "C-ML06" "K8 K9" several::a_try_of_several_whose_request_or_reply_is_lost_takes_all_or_nothing ONCE [Need::Links];
    }
}
