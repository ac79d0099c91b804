//! The cases of each kind of lock.

use super::{FENCING, FIFO, FORCE, INSPECT, LIMIT, SHARED_OWNER};
use crate::abilities::Need;
use crate::adapters::{ALL, FENCED, ONCE, SIMPLE};
use crate::cases::{Case, mutex, process, reentrant, replies, rwlock, semaphore, stale};

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
        "C-M12" "K3 K9" replies::a_release_that_is_repeated_does_not_free_the_next_hold SIMPLE [Need::Links, Need::Requests];
        /// A release whose reply is lost is done or `Indeterminate`, frees within 1 s, and the same client can go on.
        "C-M13" "K9 K10" replies::a_release_whose_reply_is_lost_frees_and_says_that_it_does_not_know SIMPLE [Need::Links, Need::Requests];
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
        "C-M20" "K2 K9" replies::a_grant_that_comes_after_its_lease_is_refused SIMPLE [Need::Links, Need::Requests];
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
        /// An owner with two requests in the queue: once the first is granted the second is too, although another owner's stands between.
        "C-RE01c" "K5" reentrant::an_owner_s_second_request_is_let_in_past_another_one ONCE [Need::Reentrant, SHARED_OWNER];
        /// Only the third of three releases frees.
        "C-RE02" "K3" reentrant::only_the_last_of_three_releases_frees ONCE [Need::Reentrant];
        /// B, waiting for A at depth 2, enters only after A's last release.
        "C-RE03" "K1" reentrant::a_waiter_enters_only_after_the_last_release ONCE [Need::Reentrant];
        /// Another owner of the same client is refused.
        "C-RE04" "K1" reentrant::another_owner_of_the_same_client_is_refused ONCE [Need::Reentrant];
        /// A nested lock with a shorter TTL never shortens the outer lease.
        "C-RE05" "K2" reentrant::a_nested_lock_never_shortens_the_outer_lease ONCE [Need::Reentrant];
        /// An owner whose first grant was not answered is inside once after the next: one release frees.
        "C-RE06" "K9" replies::an_owner_whose_first_grant_was_not_answered_is_inside_once ONCE [Need::Reentrant, Need::Links, Need::Requests];
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
        "C-RW16" "K9 K12" replies::a_downgrade_whose_reply_is_lost_is_done_when_it_is_asked_again ONCE [Need::RwLock, Need::Links, Need::Requests];
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
        "C-S16" "K9 K12" replies::permits_whose_release_is_not_answered_do_not_end_the_others ONCE [Need::Semaphore, Need::Links, Need::Requests];
        /// Owners that take one permit again and again do not starve one that asks for all.
        "C-S17" "K5" semaphore::a_request_for_all_is_not_overtaken_by_a_stream_of_small_ones ONCE [Need::Semaphore, FIFO];
    }
}
