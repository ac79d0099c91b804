//! The checker kills: more than twenty locks, each with one flaw that some real lock had, work in virtual time under faults; a named
//! check rejects every one of them. The same lock without a flaw passes all of them.

mod client;
mod flaw;
mod lab;
mod pen;
mod store;

use std::collections::BTreeSet;

use lock_testkit_checker::{Check, Verdict, check};

use crate::flaw::{Flaw, Scenario};
use crate::lab::run;

/// The number of runs that a flaw may take to show.
const SEEDS: u64 = 40;

fn assert_killed(flaw: Flaw, by: Check) {
    let mut seen = BTreeSet::new();
    let killed = (0..SEEDS).any(|seed| {
        let judgement = check(&run(flaw.scenario(), Some(flaw), seed), None);
        seen.extend(judgement.violations.iter().map(|violation| violation.check));
        judgement.is_rejected_by(by)
    });
    assert!(killed, "{flaw:?} was not killed by {by} in {SEEDS} runs; what failed was {seen:?}");
}

#[test]
fn the_sound_lock_passes() {
    for scenario in [Scenario::Mutex, Scenario::Reentrant, Scenario::ReadWrite, Scenario::Semaphore] {
        for seed in 0..SEEDS {
            let judgement = check(&run(scenario, None, seed), None);
            assert_eq!(judgement.verdict, Verdict::Ok, "{scenario:?}, seed {seed}:\n{judgement}");
        }
    }
}

#[test]
fn m01_a_blind_delete_is_killed_by_r2() {
    assert_killed(Flaw::BlindDelete, Check::R2);
}

#[test]
fn m02_a_deadline_from_the_reply_is_killed_by_l1() {
    assert_killed(Flaw::DeadlineFromReply, Check::L1);
}

#[test]
fn m03_no_deadline_is_killed_by_me() {
    assert_killed(Flaw::NoDeadline, Check::ME);
}

#[test]
fn m04_a_renewal_that_does_not_compare_is_killed_by_l1() {
    assert_killed(Flaw::BlindRenewal, Check::L1);
}

#[test]
fn m05_an_expiry_in_a_second_step_is_killed_by_p1() {
    assert_killed(Flaw::ExpiryInSecondStep, Check::P1);
}

#[test]
fn m06_a_release_that_forgets_first_is_killed_by_r3() {
    assert_killed(Flaw::ForgetsBeforeRelease, Check::R3);
}

#[test]
fn m07_a_watch_that_comes_too_late_is_killed_by_p1() {
    assert_killed(Flaw::LateWatch, Check::P1);
}

#[test]
fn m08_a_predecessor_that_is_looked_up_once_is_killed_by_me() {
    assert_killed(Flaw::FirstPredecessorOnly, Check::ME);
}

#[test]
fn m09_an_order_by_name_is_killed_by_me() {
    assert_killed(Flaw::OrderByName, Check::ME);
}

#[test]
fn m10_ghost_permits_are_killed_by_p1() {
    assert_killed(Flaw::GhostPermits, Check::P1);
}

#[test]
fn m11_tokens_from_a_clients_clock_are_killed_by_f1() {
    assert_killed(Flaw::ClientClockToken, Check::F1);
}

#[test]
fn m12_a_counter_that_expires_is_killed_by_f1() {
    assert_killed(Flaw::ExpiringCounter, Check::F1);
}

#[test]
fn m13_a_cancelled_waiter_that_stays_is_killed_by_p1() {
    assert_killed(Flaw::CancelledStays, Check::P1);
}

#[test]
fn m14_a_drop_without_a_release_is_killed_by_leak() {
    assert_killed(Flaw::DropKeeps, Check::LEAK);
}

#[test]
fn m15_a_retry_without_identity_is_killed_by_p1() {
    assert_killed(Flaw::AnonymousRetry, Check::P1);
}

#[test]
fn m16_a_deadline_by_the_wall_clock_is_killed_by_l1() {
    assert_killed(Flaw::WallClockDeadline, Check::L1);
}

#[test]
fn m17_a_reader_that_passes_a_waiting_writer_is_killed_by_p5() {
    assert_killed(Flaw::ReaderPassesWriter, Check::P5);
}

#[test]
fn m18_an_upgrade_that_waits_for_itself_is_killed_by_p2() {
    assert_killed(Flaw::UpgradeWaits, Check::P2);
}

#[test]
fn m19_an_inner_release_that_frees_all_is_killed_by_me() {
    assert_killed(Flaw::InnerReleaseFrees, Check::ME);
}

#[test]
fn m20_a_renewal_after_the_release_is_killed_by_r3() {
    assert_killed(Flaw::RenewsAfterRelease, Check::R3);
}

#[test]
fn s1_a_release_that_wakes_everybody_is_killed_by_p6() {
    assert_killed(Flaw::WakesEverybody, Check::P6);
}

#[test]
fn s2_a_reader_that_counts_later_writers_is_killed_by_p1() {
    assert_killed(Flaw::CountsLaterWriters, Check::P1);
}
