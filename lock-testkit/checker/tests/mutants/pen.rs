//! Writes down what a run shows.

use lock_testkit_checker::history::event::{
    Access, Ask, Call, Death, Done, Event, Failed, Fault, FaultPhase, Granted, Kind, Lost, Renewal, Renewed, Residue,
    Run, Sample, Step, Text, Truth, What, Woken,
};
use lock_testkit_checker::history::{History, Rules, event};

pub(crate) const MS: u64 = 1_000_000;

pub(crate) struct Pen(Vec<Event>);

impl Pen {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let mut pen = Self(Vec::new());
        pen.write(0, "main", What::Run(Box::new(Run { backend: "lab".into(), seed: Some(seed), rules })));
        pen
    }

    pub(crate) fn finish(mut self, now: u64) -> History {
        self.write(now, "main", What::End);
        self.0.into_iter().collect()
    }

    fn write(&mut self, now: u64, proc: &str, what: What) {
        self.0.push(Event { t: now * MS, proc: proc.into(), what });
    }

    fn call<I, O>(&mut self, now: u64, id: &Text, what: impl FnOnce(Call<I, O>) -> What, step: Step<I, O>) {
        let proc = id.split('.').next().unwrap_or_default().to_owned();
        self.write(now, &proc, what(Call { id: id.clone(), step }));
    }

    pub(crate) fn asks(&mut self, now: u64, id: &Text, ask: Ask) {
        self.call(now, id, What::Acquire, Step::Invoke(ask));
    }

    pub(crate) fn granted(&mut self, now: u64, id: &Text, granted: Granted) {
        self.call(now, id, What::Acquire, Step::Ok(granted));
    }

    pub(crate) fn refused(&mut self, now: u64, id: &Text, err: &str) {
        self.call(now, id, What::Acquire, Step::Fail(failed(err)));
    }

    pub(crate) fn unclear(&mut self, now: u64, id: &Text) {
        self.call(now, id, What::Acquire, Step::Info(failed("outcome_unknown")));
    }

    pub(crate) fn renewed(&mut self, now: u64, id: &Text, sent: u64, there: bool) {
        let renewed = Renewed { sent: Some(sent * MS), ttl: None };
        let step = if there { Step::Ok(renewed) } else { Step::Fail(failed("not_held")) };
        self.call::<Renewal, Renewed>(now, id, What::Renew, step);
    }

    pub(crate) fn releases(&mut self, now: u64, id: &Text, held: bool) {
        let sample = Sample { held: Some(held), deadline: None };
        self.call::<Sample, Done>(now, id, What::Release, Step::Invoke(sample));
    }

    pub(crate) fn released(&mut self, now: u64, id: &Text, there: bool) {
        let step = if there { Step::Ok(Done {}) } else { Step::Fail(failed("not_held")) };
        self.call::<Sample, Done>(now, id, What::Release, step);
    }

    pub(crate) fn release_is_unclear(&mut self, now: u64, id: &Text, err: &str) {
        self.call::<Sample, Done>(now, id, What::Release, Step::Info(failed(err)));
    }

    pub(crate) fn checked(&mut self, now: u64, id: &Text, sample: Sample) {
        let proc = id.split('.').next().unwrap_or_default().to_owned();
        self.write(now, &proc, What::Check(event::Check { id: id.clone(), sample }));
    }

    pub(crate) fn lost(&mut self, now: u64, id: &Text, reason: &str) {
        let proc = id.split('.').next().unwrap_or_default().to_owned();
        self.write(now, &proc, What::Lost(Lost { id: id.clone(), reason: reason.into() }));
    }

    pub(crate) fn accessed(&mut self, now: u64, id: &Text, token: u64, write: Option<u64>, accepted: bool) {
        let (target, token) = ("ledger".into(), Some(token));
        let access = Access { id: id.clone(), target, fenced: true, token, shared: false, write, accepted };
        self.write(now, "resource", What::Access(access));
    }

    pub(crate) fn fault(&mut self, now: u64, id: &str, phase: FaultPhase, name: &str, target: &str) {
        let proof = Some("the lab does as it is told".into());
        self.write(
            now,
            "main",
            What::Fault(Fault {
                id: id.into(),
                phase,
                name: name.into(),
                target: target.into(),
                on_links: name == "blackhole",
                proof,
            }),
        );
    }

    pub(crate) fn died(&mut self, now: u64, victim: &str) {
        self.write(now, "main", What::Death(Death { victim: victim.into() }));
    }

    pub(crate) fn truth(&mut self, now: u64, kind: Kind, holders: Vec<Text>) {
        self.write(now, "main", What::Truth(Truth { res: "x".into(), kind, after: now * MS, holders }));
    }

    pub(crate) fn woken(&mut self, now: u64, count: u64) {
        self.write(now, "main", What::Woken(Woken { res: "x".into(), count }));
    }

    pub(crate) fn residue(&mut self, now: u64, entries: Vec<Text>) {
        self.write(now, "main", What::Residue(Residue { entries }));
    }
}

fn failed(err: &str) -> Failed {
    Failed { err: err.into(), note: None }
}
