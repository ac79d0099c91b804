//! The cases of what some backends add: records, adoption, leaving, and several locks at once.

use lock_core::Guarantee;

use super::{ADOPTION, FORCE, INSPECT, LEAVE, RECORD};
use crate::abilities::Need;
use crate::adapters::ONCE;
use crate::cases::{Case, adoption, leave, record, record_survival, several};
use crate::harness::ServerFault;

cases! {
    "Record" {
        /// A record that A writes, bytes of any value and none, is read by B and found by the next holder, whose token stamps the record at once.
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
        "C-RC06" "K3 K4" record::a_write_that_arrives_after_the_next_grant_changes_nothing ONCE [RECORD, Need::Links, Need::Requests];
        /// Each reply to a write is lost: the write is done or not known to be, never told as definitely undone, and can be repeated.
        "C-RC07" "K9" record::a_write_whose_reply_is_lost_is_done_or_unknown_and_can_be_repeated ONCE [RECORD, Need::Links, Need::Requests];
        /// Each reply to a write is lost, and the grant freed by force before the client connects again: if the data is there, the
        /// write is not told as definitely undone.
        "C-RC08" "K9" record::a_write_whose_reply_is_lost_with_its_grant_is_not_told_as_undone ONCE [RECORD, FORCE, Need::Links, Need::Requests];
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
        "C-RC12b" "K3 K4" record::a_write_that_arrives_after_a_plain_grant_changes_nothing ONCE [RECORD, FORCE, Need::Links, Need::Requests];
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
        "C-AD04" "K8 K9" adoption::an_adoption_whose_request_or_reply_is_lost_is_done_or_unknown ONCE [ADOPTION, Need::Links, Need::Requests];
        /// A server refuses one request of an adoption, perhaps after a lost reply: it is adopted, or that is not known, or the message is still good for another client;
        /// and nothing stays.
        "C-AD04b" "K8 K9" adoption::a_refused_request_of_an_adoption_leaves_it_done_or_unknown_or_the_message_good ONCE [ADOPTION, Need::Links, Need::Requests, Need::Refusals];
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
        "C-LV07" "K9 K10" leave::a_request_to_leave_a_lock_that_is_lost_or_its_reply_is_sent_again ONCE [LEAVE, Need::Links, Need::Requests];
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
        "C-ML06" "K8 K9" several::a_try_of_several_whose_request_or_reply_is_lost_takes_all_or_nothing ONCE [Need::Links, Need::Requests];
    }
}
