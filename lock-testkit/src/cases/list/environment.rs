//! The cases of faults, of input, and of others beside the clients: operators, and clients of other libraries.

use lock_core::Guarantee;

use super::{FORCE, FOREIGN, INSPECT, PUSH};
use crate::abilities::Need;
use crate::adapters::{ALL, ONCE, SIMPLE};
use crate::cases::{
    Case, foreign, forgetting, naming, observe, outage, process, refusals, replies, runtimes, servers, session, waiting,
};
use crate::harness::ServerFault;

cases! {
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
        "C-F05" "K9" replies::an_acquisition_whose_reply_is_lost_has_no_second_effect SIMPLE [Need::Links, Need::Requests];
        /// An acquisition that is dropped before its reply, on a link that is late and healthy again, is undone within 1 s, although its lease is
        /// long; the next try of the same client is granted.
        "C-F05b" "K8 K9" replies::an_acquisition_that_is_dropped_before_its_reply_is_undone_at_once SIMPLE [Need::Links, Need::Requests];
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
        "C-F19" "K9 K15" replies::replies_that_are_cut_in_the_middle_reach_nobody_else SIMPLE [Need::Links, Need::Requests];
        /// A server refuses one request (it is loading, read-only, out of memory, or knows the client's rights no more): an acquisition says so and
        /// leaves nothing, a renewal costs no lock, a release comes about all the same.
        "C-F20" "K10 K15" refusals::what_servers_refuse_is_told_and_costs_nobody_a_lock ONCE [Need::Refusals, Need::Requests];
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
        "C-N06" "K15" naming::foreign_garbage_in_its_place_is_a_typed_error ONCE [Need::Admin, Need::Garbage];
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
}
