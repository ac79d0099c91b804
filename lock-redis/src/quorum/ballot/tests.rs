//! Votes, counted: majorities, split votes, and servers without an answer.

use lock_core::ErrorKind;

use super::*;
use crate::error::RequestFate;

fn said(yes: bool, rest: &str) -> Result<ScriptVote, Failed> {
    Ok(ScriptVote { yes, rest: rest.to_owned() })
}

fn failed(error: Error) -> Result<ScriptVote, Failed> {
    Err(Failed { fate: RequestFate::Unknown, error, wrong_type: false })
}

/// `+` granted, `x` failed, any other letter: held by that one.
fn verdict(servers: usize, votes: &str) -> VoteState {
    let mut ballot = Ballot::of(servers);
    for (server, vote) in votes.chars().enumerate() {
        ballot.count(
            server,
            match vote {
                '+' => said(true, ""),
                'x' => failed(Error::indeterminate(Phase::Acquire, "sent")),
                other => said(false, &format!("9:{other}")),
            },
        );
    }
    ballot.verdict()
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([3, 4, 5, 6, 7].map(majority), [2, 3, 3, 4, 4]);
}

#[test]
fn a_majority_decides_without_the_rest() {
    assert_eq!(verdict(5, "++"), VoteState::Open);
    assert_eq!(verdict(5, "++xx+"), VoteState::Granted);
    assert_eq!(verdict(5, "+++"), VoteState::Granted);
    assert_eq!(verdict(5, "aaa"), VoteState::Held);
    assert_eq!(verdict(5, "xxx"), VoteState::Failed);
    assert_eq!(verdict(4, "++"), VoteState::Open);
    assert_eq!(verdict(4, "++xx"), VoteState::Failed);
}

#[test]
fn a_split_vote_is_nobody_s() {
    assert_eq!(verdict(5, "++aab"), VoteState::Split);
    assert_eq!(verdict(5, "+aabb"), VoteState::Split);
    assert_eq!(verdict(5, "+abc"), VoteState::Split, "the fifth can help nobody");
    assert_eq!(verdict(7, "+aabb"), VoteState::Open, "a or b may have the other two");
    assert_eq!(verdict(7, "+aabx"), VoteState::Open, "a may have the other three");
    assert_eq!(verdict(4, "++aa"), VoteState::Split);
}

#[test]
fn who_may_have_a_majority_with_silent_servers_may_hold_it() {
    assert_eq!(verdict(5, "+aaxx"), VoteState::MayBeHeld);
    assert_eq!(verdict(5, "aaxxa"), VoteState::Held);
    assert_eq!(verdict(5, "+aab"), VoteState::Open, "a may have the fifth");
    assert_eq!(verdict(5, "+aabx"), VoteState::MayBeHeld);
}

/// Tests that, whatever comes after it, a verdict other than `Open` was right; and when all have voted there is one.
#[test]
fn every_order_of_votes_ends_in_a_verdict() {
    let letters = ['+', 'a', 'b', 'x'];
    for servers in [3, 4, 5] {
        for code in 0..letters.len().pow(servers as u32) {
            let votes: String = (0..servers).map(|i| letters[code / letters.len().pow(i as u32) % 4]).collect();
            assert_ne!(verdict(servers, &votes), VoteState::Open, "{votes}");
            let granted = votes.chars().filter(|vote| *vote == '+').count() >= majority(servers);
            for seen in 0..=servers {
                let early = verdict(servers, &votes[..seen]);
                assert!(early != VoteState::Granted || granted, "{votes} after {seen}");
                assert!(early == VoteState::Granted || early == VoteState::Open || !granted, "{votes} after {seen}");
            }
        }
    }
}

#[test]
fn a_server_that_has_not_answered_when_the_vote_is_over_may_have_granted_it() {
    let mut votes = Ballot::of(5);
    let may_leave = |votes: &Ballot| votes.may_leave().collect::<Vec<_>>();
    assert_eq!(may_leave(&votes), [0, 1, 2, 3, 4]);
    votes.count(3, said(true, ""));
    votes.count(0, failed(Error::unavailable(Phase::Acquire, "not sent")));
    votes.count(2, failed(Error::indeterminate(Phase::Acquire, "sent")));
    votes.count(1, failed(Error::unavailable(Phase::Acquire, "not sent")));
    assert_eq!((&*votes.granted, &*may_leave(&votes)), (&[3][..], &[2, 3, 4][..]));
    let mut votes = Ballot::of(5);
    (0..3).for_each(|server| votes.count(server, said(false, "9:a")));
    assert_eq!((votes.verdict(), may_leave(&votes)), (VoteState::Held, vec![3, 4]));
}

#[test]
fn it_may_be_free_when_the_first_holder_s_lease_ends() {
    let mut votes = Ballot::of(3);
    votes.count(0, said(false, "-1:a"));
    assert_eq!(votes.ends_in, None);
    votes.count(1, said(false, "70:b"));
    votes.count(2, said(false, "90:b"));
    assert_eq!((votes.ends_in, votes.verdict()), (Some(Duration::from_millis(70)), VoteState::Held));
}

#[test]
fn only_replies_with_the_nonce_count() {
    let reply = |text: &str| ScriptVote::read(Value::BulkString(text.into()), "abc");
    assert_eq!(reply("abc+"), Some(ScriptVote { yes: true, rest: String::new() }));
    assert_eq!(reply("abc-def"), Some(ScriptVote { yes: false, rest: "def".to_owned() }));
    for wrong in ["abd+", "abc", "", "abc?"] {
        assert_eq!(reply(wrong), None, "{wrong}");
    }
    assert_eq!(ScriptVote::read(Value::Int(1), "abc"), None);
}

#[test]
fn a_vote_from_outside_is_of_its_request_or_refused() {
    let samples =
        ["abc+", "abc+17", "abc-", "abc-70:0123", "abc--1:xy", "abc-:", "abc-18446744073709551615:a:b", "abd+"];
    let samples: Vec<_> = samples.iter().map(|sample| sample.as_bytes()).collect();
    lock_testkit::fuzz::bytes("votes of a quorum's servers", &samples, |bytes| {
        let Some(vote) = ScriptVote::read(Value::BulkString(bytes.to_owned()), "abc") else {
            assert!(!bytes.starts_with(b"abc+") && !bytes.starts_with(b"abc-"));
            return;
        };
        let sign = if vote.yes { "+" } else { "-" };
        let again = ["abc", sign, &vote.rest].concat();
        assert_eq!(again, String::from_utf8_lossy(bytes));
        let (ends_in, holder) = held(&vote.rest);
        assert!(vote.rest.ends_with(holder));
        let mut votes = Ballot::of(3);
        votes.count(1, Ok(vote.clone()));
        let (granted, refused): (&[_], &[_]) = if vote.yes { (&[1], &[]) } else { (&[], &[1]) };
        assert_eq!((&*votes.granted, &*votes.refused), (granted, refused));
        assert!(votes.may_leave().eq((0..3).filter(|server| vote.yes || *server != 1)));
        assert_eq!(votes.ends_in, ends_in.filter(|_| !vote.yes));
    });
}

fn kind(leftovers: &Leftovers, outcome: Result<Option<Grant>, Error>) -> Option<ErrorKind> {
    leftovers.judge(outcome).err().map(|error| error.kind())
}

#[test]
fn a_refusal_is_definite_while_others_find_a_majority() {
    let unavailable = || Err(Error::unavailable(Phase::Acquire, "too few servers"));
    let mut leftovers = Leftovers::of(3);
    leftovers.add(0);
    leftovers.add(0);
    assert_eq!(kind(&leftovers, Ok(None)), None);
    assert_eq!(kind(&leftovers, unavailable()), Some(ErrorKind::Unavailable));
    leftovers.add(2);
    assert_eq!(kind(&leftovers, Ok(None)), Some(ErrorKind::Indeterminate));
    let error = leftovers.judge(unavailable()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(std::error::Error::source(&error).expect("it has a cause").to_string().contains("too few servers"));
    leftovers.remove(1);
    assert_eq!(kind(&leftovers, Ok(None)), Some(ErrorKind::Indeterminate), "an entry may be at the other two still");
    leftovers.remove(0);
    assert_eq!(kind(&leftovers, Ok(None)), None);
}

#[test]
fn what_leaves_nothing_behind_and_what_is_unknown_is_told_as_it_is() {
    assert_eq!(kind(&Leftovers::of(3), Ok(None)), None, "no entry is anywhere");
    let mut leftovers = Leftovers::of(3);
    [0, 1].into_iter().for_each(|server| leftovers.add(server));
    let unknown = leftovers.judge(Err(Error::indeterminate(Phase::Wait, "no answer came"))).unwrap_err();
    assert!(std::error::Error::source(&unknown).is_none() && unknown.to_string().contains("no answer came"));
}
