//! Histories by hand. All times are in milliseconds.

use crate::history::event::{
    Access, Ask, Call, Change, Death, Done, Event, Failed, Fault, FaultPhase, Granted, Kind, Lost, Renewal, Renewed,
    Residue, Run, Sample, Step, Text, Theft, Truth, What, Woken,
};
use crate::history::recipe::{Lead, RecordSeen, SlotAnswer, SlotAsk, Work};
use crate::history::{History, Rules, event};
use crate::{Check, Judgement, check};

const MS: u64 = 1_000_000;

/// A history in the making.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    events: Vec<Event>,
    ids: usize,
}

/// A request for a mutex called `x`, with a TTL of 1 s, waiting for up to 10 s.
pub(super) fn mutex(owner: &str) -> Ask {
    Ask {
        owner: owner.into(),
        res: "x".into(),
        kind: Kind::Mutex,
        permits: 1,
        limit: 1,
        ttl: 1_000 * MS,
        wait: Some(10_000 * MS),
        group: None,
    }
}

pub(super) fn of_kind(kind: Kind, owner: &str) -> Ask {
    Ask { kind, ..mutex(owner) }
}

/// A grant that is held, with a token.
pub(super) fn token(token: u64) -> Granted {
    Granted { token: Some(token), ..Granted::default() }
}

/// Rules that want nothing but what a sketch has.
pub(super) fn rules() -> Rules {
    let mut rules = Rules::default();
    (rules.least.grants, rules.least.contended, rules.least.faults) = (1, 0, 0);
    rules
}

impl Sketch {
    /// An empty one, to be judged by these rules.
    pub(super) fn by(rules: Rules) -> Self {
        let mut sketch = Self::default();
        let run = Run { backend: "sketch".into(), seed: None, rules };
        sketch.add(0, "main", What::Run(Box::new(run)));
        sketch
    }

    pub(super) fn new() -> Self {
        Self::by(rules())
    }

    pub(super) fn add(&mut self, t: u64, proc: &str, what: What) {
        self.events.push(Event { t: t * MS, proc: proc.into(), what });
    }

    /// A request, by the process that is called as its owner.
    pub(super) fn ask(&mut self, t: u64, ask: Ask) -> Text {
        self.ids += 1;
        let id: Text = format!("{}{}", ask.owner, self.ids).into();
        let proc = ask.owner.clone();
        self.add(t, &proc, What::Acquire(Call { id: id.clone(), step: Step::Invoke(ask) }));
        id
    }

    pub(super) fn grant(&mut self, t: u64, id: &Text, granted: Granted) {
        self.call(t, id, What::Acquire, Step::Ok(granted));
    }

    pub(super) fn refuse(&mut self, t: u64, id: &Text) {
        self.call(t, id, What::Acquire, Step::Fail(failed("held")));
    }

    /// A request that nobody waits for any more.
    pub(super) fn cancel(&mut self, t: u64, id: &Text) {
        self.call::<Ask, Granted>(t, id, What::Acquire, Step::Info(failed("cancelled")));
    }

    /// A request that is granted 1 ms later.
    pub(super) fn take(&mut self, t: u64, ask: Ask, granted: Granted) -> Text {
        let id = self.ask(t, ask);
        self.grant(t + 1, &id, granted);
        id
    }

    /// A request that is granted 1 ms later, and a release at `until` that is done 1 ms after that.
    pub(super) fn hold(&mut self, t: u64, until: u64, ask: Ask, granted: Granted) -> Text {
        let id = self.take(t, ask, granted);
        self.release(until, &id);
        id
    }

    /// A release that is done 1 ms later.
    pub(super) fn release(&mut self, t: u64, id: &Text) {
        self.release_until(t, t + 1, id);
    }

    pub(super) fn release_until(&mut self, t: u64, until: u64, id: &Text) {
        self.call::<Sample, Done>(t, id, What::Release, Step::Invoke(Sample::default()));
        self.call::<Sample, Done>(until, id, What::Release, Step::Ok(Done {}));
    }

    /// A release by a holder that says whether it holds, and until when; done 1 ms later.
    pub(super) fn release_saying(&mut self, t: u64, id: &Text, held: bool, deadline: u64) {
        let sample = Sample { held: Some(held), deadline: Some(deadline * MS) };
        self.call::<Sample, Done>(t, id, What::Release, Step::Invoke(sample));
        self.call::<Sample, Done>(t + 1, id, What::Release, Step::Ok(Done {}));
    }

    /// A release that finds, 1 ms later, that the lock is not held any more.
    pub(super) fn release_nothing(&mut self, t: u64, id: &Text) {
        self.call::<Sample, Done>(t, id, What::Release, Step::Invoke(Sample::default()));
        self.call::<Sample, Done>(t + 1, id, What::Release, Step::Fail(failed("not_held")));
    }

    /// A release of which it is known, 1 ms later, that it was not sent.
    pub(super) fn release_unsent(&mut self, t: u64, id: &Text) {
        self.call::<Sample, Done>(t, id, What::Release, Step::Invoke(Sample::default()));
        self.call::<Sample, Done>(t + 1, id, What::Release, Step::Fail(failed("unavailable")));
    }

    /// A release of which nobody hears again.
    pub(super) fn release_unheard(&mut self, t: u64, id: &Text) {
        self.call::<Sample, Done>(t, id, What::Release, Step::Invoke(Sample::default()));
        self.call::<Sample, Done>(t + 1, id, What::Release, Step::Info(failed("outcome_unknown")));
    }

    /// Asked for at `t` and done at `until`.
    pub(super) fn change(&mut self, t: u64, until: u64, id: &Text, kind: Kind, permits: u32) {
        self.call::<Change, Done>(t, id, What::Change, Step::Invoke(Change { kind, permits }));
        self.call::<Change, Done>(until, id, What::Change, Step::Ok(Done {}));
    }

    /// Asked for at `t`; at `until` it is known that nobody knows what became of it.
    pub(super) fn change_unheard(&mut self, t: u64, until: u64, id: &Text, kind: Kind, permits: u32) {
        self.call::<Change, Done>(t, id, What::Change, Step::Invoke(Change { kind, permits }));
        self.call::<Change, Done>(until, id, What::Change, Step::Info(failed("outcome_unknown")));
    }

    pub(super) fn renew(&mut self, sent: u64, t: u64, id: &Text) {
        self.call::<Renewal, Renewed>(sent, id, What::Renew, Step::Invoke(Renewal {}));
        let renewed = Renewed { sent: Some(sent * MS), ttl: None };
        self.call::<Renewal, Renewed>(t, id, What::Renew, Step::Ok(renewed));
    }

    pub(super) fn check(&mut self, t: u64, id: &Text, held: bool) {
        let sample = Sample { held: Some(held), deadline: None };
        self.add(t, proc_of(id), What::Check(event::Check { id: id.clone(), sample }));
    }

    /// Has the holder say that it holds, and until when at least.
    pub(super) fn check_until(&mut self, t: u64, id: &Text, deadline: u64) {
        let sample = Sample { held: Some(true), deadline: Some(deadline * MS) };
        self.add(t, proc_of(id), What::Check(event::Check { id: id.clone(), sample }));
    }

    pub(super) fn lose(&mut self, t: u64, id: &Text, reason: &str) {
        self.add(t, proc_of(id), What::Lost(Lost { id: id.clone(), reason: reason.into() }));
    }

    /// A use of a resource; `write` is what is written.
    pub(super) fn access(&mut self, t: u64, id: &Text, token: u64, write: Option<u64>, accepted: bool) {
        let access = Access {
            id: id.clone(),
            target: "ledger".into(),
            fenced: true,
            token: Some(token),
            shared: false,
            write,
            accepted,
        };
        self.add(t, "resource", What::Access(access));
    }

    pub(super) fn fault(&mut self, from: u64, to: u64, target: &str, proof: Option<&str>) {
        self.fault_on(from, to, target, proof, false);
    }

    /// A fault on the links of this process alone.
    pub(super) fn fault_on_links(&mut self, from: u64, to: u64, target: &str) {
        self.fault_on(from, to, target, Some("bytes were held"), true);
    }

    fn fault_on(&mut self, from: u64, to: u64, target: &str, proof: Option<&str>, on_links: bool) {
        for (t, phase) in [(from, FaultPhase::Start), (to, FaultPhase::Heal)] {
            self.note_fault(t, phase, &format!("f{from}"), target, on_links, proof);
        }
    }

    /// A fault that is proven, and of whose end nobody hears.
    pub(super) fn fault_without_end(&mut self, from: u64, target: &str) {
        self.note_fault(from, FaultPhase::Start, &format!("f{from}"), target, false, Some("state T"));
    }

    fn note_fault(&mut self, t: u64, phase: FaultPhase, id: &str, target: &str, on_links: bool, proof: Option<&str>) {
        let name = if target == "machine" { event::STALL } else { "sigstop" };
        let (id, name, proof) = (id.into(), name.into(), proof.map(Into::into));
        self.add(t, "main", What::Fault(Fault { id, phase, name, target: target.into(), on_links, proof }));
    }

    pub(super) fn kill(&mut self, t: u64, victim: &str) {
        self.add(t, "main", What::Death(Death { victim: victim.into() }));
    }

    /// Nothing was taken before `after`, everything by `t`.
    pub(super) fn steal(&mut self, after: u64, t: u64, grants: &[&str]) {
        let grants = grants.iter().map(|grant| (*grant).into()).collect();
        self.add(t, "main", What::Theft(Theft { session: "0x1".into(), grants, after: after * MS }));
    }

    pub(super) fn truth(&mut self, t: u64, holders: &[&str]) {
        self.truth_of(Kind::Mutex, t, holders);
    }

    pub(super) fn truth_of(&mut self, kind: Kind, t: u64, holders: &[&str]) {
        let holders = holders.iter().map(|holder| (*holder).into()).collect();
        let truth = Truth { res: "x".into(), kind, after: (t - 1) * MS, holders };
        self.add(t, "main", What::Truth(truth));
    }

    pub(super) fn woken(&mut self, t: u64, count: u64) {
        self.add(t, "main", What::Woken(Woken { res: "x".into(), count }));
    }

    pub(super) fn residue(&mut self, t: u64, entries: &[&str]) {
        let entries = entries.iter().map(|entry| (*entry).into()).collect();
        self.add(t, "main", What::Residue(Residue { entries }));
    }

    /// A request for a slot of the job `nightly`, to be run again or not.
    pub(super) fn ask_slot(&mut self, t: u64, proc: &str, slot: u64, again: bool) -> Text {
        self.ids += 1;
        let id: Text = format!("{proc}{}", self.ids).into();
        let ask = SlotAsk { job: "nightly".into(), slot, again };
        self.add(t, proc, What::Slot(Call { id: id.clone(), step: Step::Invoke(ask) }));
        id
    }

    pub(super) fn answer_slot(&mut self, t: u64, id: &Text, ran: bool, latest: u64) {
        self.call(t, id, What::Slot, Step::Ok(SlotAnswer { ran, latest }));
    }

    pub(super) fn lose_slot(&mut self, t: u64, id: &Text) {
        self.call::<SlotAsk, SlotAnswer>(t, id, What::Slot, Step::Info(failed("lost")));
    }

    pub(super) fn work(&mut self, t: u64, id: &Text, slot: u64, accepted: bool) {
        let work = Work { id: id.clone(), job: "nightly".into(), slot, token: t, accepted };
        self.add(t, "resource", What::Work(work));
    }

    /// An answer between these instants.
    pub(super) fn lead(&mut self, after: u64, t: u64, leader: &str, term: Option<u64>) {
        let (election, leader) = ("scheduler".into(), leader.into());
        self.add(t, "main", What::Lead(Lead { election, leader, term, after: after * MS, by: "state".into() }));
    }

    pub(super) fn record(&mut self, after: u64, t: u64, term: u64, written: Option<u64>) {
        self.add(t, "main", What::Record(RecordSeen { res: "nightly".into(), term, written, after: after * MS }));
    }

    fn call<I, O>(&mut self, t: u64, id: &Text, what: impl FnOnce(Call<I, O>) -> What, step: Step<I, O>) {
        self.add(t, proc_of(id), what(Call { id: id.clone(), step }));
    }

    /// With its end, at this time.
    pub(super) fn end(mut self, t: u64) -> Self {
        self.add(t, "main", What::End);
        self
    }

    pub(super) fn judge(self) -> Judgement {
        check(&self.events.into_iter().collect::<History>(), None)
    }

    /// The checks that reject it.
    pub(super) fn rejections(self) -> Vec<Check> {
        self.judge().violations.iter().map(|violation| violation.check).collect()
    }
}

fn proc_of(id: &Text) -> &str {
    id.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn failed(err: &str) -> Failed {
    Failed { err: err.into(), note: None }
}
