//! The life of a leased delivery, top to bottom: halted or expired? attempt, decide, settle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::decide::{Decision, Progress, Rules, decide};
use postrider_core::store::{Change, Halt, Leased, Settlement};
use postrider_core::{
    Attempt, AttemptRecord, Channel, ChannelKind, Class, Clock, Finished, LaneKey, Outcome, Report,
    Signal, State, Timestamp,
};

use crate::flow::Flow;
use crate::lanes::{Lanes, Lesson, Ticket};
use crate::observer::Observer;
use crate::roll::Roll;
use crate::settler::{Pending, Settlements};

/// What every attempt needs, shared by all.
pub(crate) struct Bench {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) settlements: Settlements,
    pub(crate) roll: Roll,
}

/// Leased deliveries of one lane that go to their channel together.
pub(crate) struct Batch {
    pub(crate) lane: Arc<LaneKey>,
    pub(crate) class: Arc<Class>,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) ticket: Ticket,
    pub(crate) jobs: Vec<Job>,
}

pub(crate) struct Job {
    pub(crate) leased: Leased,
    resigned: bool,
    replays: u32,
    /// Attempts made under this lease.
    tries: u32,
    ended: bool,
}

impl Job {
    pub(crate) fn new(leased: Leased) -> Self {
        Self { leased, resigned: false, replays: 0, tries: 0, ended: false }
    }
}

/// Settles what must not be sent; says whether the delivery is still to be attempted.
pub(crate) fn may_be_sent(
    bench: &Bench,
    lane: &Arc<LaneKey>,
    leased: &Leased,
    class: &Class,
    now: Timestamp,
) -> bool {
    let change = match leased.halt {
        Some(Halt::AddressGone) => Change::Finish(State::Gone),
        None if now >= leased.expires_at => {
            let progress = Progress { attempts: leased.attempts + 1, ..Progress::default() };
            let rules = rules(leased, class);
            change_of(&decide(&Outcome::Expired, &progress, &rules, now, 0.0))
        }
        None => return true,
    };
    bench.settlements.push(Pending {
        settlement: Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempt: None,
            change,
        },
        lane: lane.clone(),
        accepted_at: leased.message.created_at,
        decided_at: now,
    });
    false
}

impl Batch {
    /// Attempts every job until it has an end under this lease.
    pub(crate) async fn run(self, bench: Arc<Bench>) {
        let running = Running {
            lane: self.lane,
            class: self.class,
            ticket: self.ticket,
            bench,
            jobs: self.jobs.into(),
        };
        loop {
            let attempts = running.open_attempts();
            if attempts.is_empty() {
                return;
            }
            let slots: Vec<_> = attempts.iter().map(|a| (a.slot, a.number)).collect();
            self.channel.deliver(attempts, &|finished| running.end(finished)).await;
            for (slot, number) in slots {
                running.insist(slot, number);
            }
        }
    }
}

/// A batch under way. Whatever has no end when it is dropped (the server is stopping, a channel
/// panicked) gives its lease and its place back.
struct Running {
    lane: Arc<LaneKey>,
    class: Arc<Class>,
    ticket: Ticket,
    bench: Arc<Bench>,
    jobs: Mutex<Vec<Job>>,
}

impl Running {
    fn jobs(&self) -> MutexGuard<'_, Vec<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_attempts(&self) -> Vec<Attempt> {
        let now = self.bench.clock.now();
        let jobs = self.jobs();
        let open = jobs.iter().enumerate().filter(|(_, job)| !job.ended);
        open.map(|(slot, job)| Attempt {
            delivery: job.leased.delivery,
            message: job.leased.message.clone(),
            class: self.class.clone(),
            target: job.leased.target.clone(),
            number: job.leased.tries + job.tries + 1,
            now,
            expires_at: job.leased.expires_at,
            resign: job.resigned,
            slot,
        })
        .collect()
    }

    fn end(&self, finished: Finished) {
        let mut jobs = self.jobs();
        let Some(job) = jobs.get_mut(finished.slot).filter(|job| !job.ended) else { return };
        let lesson = lesson(&self.lane, &job.leased, &finished.report);
        if conclude(&self.bench, &self.lane, &self.class, job, finished) {
            job.ended = true;
            if let Some(event) = self.bench.lanes.ended(&self.ticket, Some(lesson)) {
                self.bench.observer.lane_event(&self.lane, event);
            }
        }
    }

    /// A channel owes a report for every attempt. Without one we cannot know what happened.
    fn insist(&self, slot: usize, number: u32) {
        let silent = self
            .jobs()
            .get(slot)
            .is_some_and(|j| !j.ended && j.leased.tries + j.tries + 1 == number);
        if silent {
            let report = Report::new(Outcome::Ambiguous).code("no_report");
            self.end(Finished { slot, report, latency_ms: 0 });
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.bench.clock.now();
        let jobs = self.jobs();
        for Job { leased, .. } in jobs.iter().filter(|job| !job.ended) {
            self.bench.lanes.ended(&self.ticket, None);
            self.bench.settlements.push(Pending {
                settlement: Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempt: None,
                    change: Change::Release,
                },
                lane: self.lane.clone(),
                accepted_at: leased.message.created_at,
                decided_at: now,
            });
        }
    }
}

/// What an answer says about the provider.
fn lesson(lane: &LaneKey, leased: &Leased, report: &Report) -> Lesson {
    let [a, b, c, d, e, f, g, h, ..] = leased.hash.0;
    Lesson {
        signal: Signal::of(&report.outcome, report.status),
        wait: match report.outcome {
            Outcome::RetryAfter { after, scope } => Some((scope, after)),
            _ => None,
        },
        target: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        // A plain HTTP request names a credential of its own.
        tenant_credential: lane.channel != ChannelKind::Http,
    }
}

/// Decides what one answer leads to and hands it to the settler. False if the job goes once more.
fn conclude(
    bench: &Bench,
    lane: &Arc<LaneKey>,
    class: &Class,
    job: &mut Job,
    finished: Finished,
) -> bool {
    let now = bench.clock.now();
    let leased = &job.leased;
    let progress = Progress {
        attempts: leased.attempts + 1,
        last_delay: leased.last_delay,
        resigned: job.resigned,
        replays: job.replays,
        address_age: leased.address_since.map(|since| now.since(since)),
    };
    let rules = rules(leased, class);
    let decision = decide(&finished.report.outcome, &progress, &rules, now, bench.roll.next());
    job.tries += 1;
    let record =
        record(leased.tries + job.tries, finished.report, finished.latency_ms, &decision, now);
    bench.observer.attempted(lane, leased.delivery, leased.hash, &record);
    if let Decision::Again { resign } = decision {
        job.resigned |= resign;
        job.replays += u32::from(!resign);
        return false;
    }
    bench.settlements.push(Pending {
        settlement: Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempt: Some(record),
            change: change_of(&decision),
        },
        lane: lane.clone(),
        accepted_at: leased.message.created_at,
        decided_at: now,
    });
    true
}

fn rules<'a>(leased: &'a Leased, class: &'a Class) -> Rules<'a> {
    let own = leased.retry.as_ref().or(leased.message.envelope.retry.as_ref());
    Rules {
        retry: own.unwrap_or(&class.retry),
        on_ambiguous: class.on_ambiguous,
        on_expiry: class.on_expiry,
        ttl_s: leased.message.ttl_s,
        expires_at: leased.expires_at,
    }
}

fn change_of(decision: &Decision) -> Change {
    match decision {
        Decision::Done => Change::Finish(State::Sent),
        Decision::Retry { after, .. } => Change::Retry { after: *after },
        Decision::Park { after } => Change::Park { after: *after },
        Decision::Expire => Change::Finish(State::Expired),
        Decision::DeadLetter(reason) => Change::DeadLetter(*reason),
        Decision::MarkGone => Change::Gone,
        Decision::Again { .. } => Change::Release,
    }
}

fn record(
    number: u32,
    report: Report,
    latency_ms: u32,
    decision: &Decision,
    now: Timestamp,
) -> AttemptRecord {
    let (next_at, counted) = match decision {
        Decision::Retry { after, counted } => (Some(now + *after), *counted),
        Decision::Park { after } => (Some(now + *after), false),
        Decision::Again { .. } => (Some(now), false),
        _ => (None, true),
    };
    AttemptRecord {
        number,
        at: now - Duration::from_millis(u64::from(latency_ms)),
        latency_ms,
        outcome: report.outcome.name().into(),
        decision: decision.name().into(),
        status: report.status,
        code: report.code,
        detail: report.detail,
        retry_after: report.retry_after,
        provider_id: report.provider_id,
        next_at,
        counted,
    }
}
