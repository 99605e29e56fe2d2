//! Carries out a plan on a running process: traffic, operator actions and faults, then the calm phase,
//! in which every delivery must end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider_core::ports::store::{DeliveryFilter, Replay, Selection};
use postrider_core::{Clock, LaneKey, State, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_dispatch::{IntakeAnswer, Submission};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::oracle::{CallerAnswer, DeliveryRecord, check};
use crate::plan::{PlannedCrash, PlannedMessage, SimAction};
use crate::process::{SimProcess, SimWorker, number};
use crate::world::World;

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// All memory is lost; if `torn`, also the write in progress.
    Crashed {
        down_ms: i64,
        torn: bool,
    },
    Restarted {
        down_ms: i64,
    },
    /// The plan is done, or an invariant was broken.
    Over,
}

/// Time after the last fault in which every delivery must end, apart from clock jumps: the longest
/// `Retry-After` of an address (an hour), the longest open breaker, waits and retries.
const CALM_MAX: Duration = Duration::from_secs(3 * 3600);
const POLL_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct PlanDriver<'a> {
    world: &'a Arc<World>,
    process: SimProcess,
    next_action: &'a mut usize,
}

impl<'a> PlanDriver<'a> {
    pub(crate) fn new(
        world: &'a Arc<World>,
        process: SimProcess,
        next_action: &'a mut usize,
    ) -> Self {
        Self { world, process, next_action }
    }

    pub(crate) async fn drive(mut self) -> Result<ProcessEnd> {
        while let Some((at, action)) = self.world.plan.actions.get(*self.next_action) {
            if let Some(end) = self.pass_until(*at).await {
                return Ok(end);
            }
            *self.next_action += 1;
            if let SimAction::Restart { drain_ms, down_ms } = action {
                return self.restart(*drain_ms, *down_ms).await;
            }
            if let Some(end) = self.perform(action).await? {
                return Ok(end);
            }
        }
        if let Some(end) = self.pass_until(self.world.plan.calm_at_ms).await {
            return Ok(end);
        }
        self.calm().await
    }

    /// Lets time pass; returns how the process ended, if it did meanwhile.
    async fn pass_until(&self, at_ms: i64) -> Option<ProcessEnd> {
        let left = at_ms - self.world.clock.elapsed();
        let left = Duration::from_millis(left.max(0) as u64);
        let _ = timeout(left, self.world.stop.notified()).await;
        take_end(self.world)
    }

    async fn perform(&mut self, action: &SimAction) -> Result<Option<ProcessEnd>> {
        let world = self.world;
        match action {
            SimAction::Submit(messages) => self.submit(messages),
            SimAction::Cancel(message) => self.cancel(*message).await?,
            SimAction::Replay { ttl_s, rate_per_s } => self.replay(*ttl_s, *rate_per_s).await?,
            SimAction::Pause(tenant) => self.pause(*tenant).await?,
            SimAction::Resume(tenant) => self.resume(*tenant),
            SimAction::Force { provider, forced } => {
                world.with(|state| {
                    state.note("force", *provider, "", forced.map_or(0, |f| f as i64 + 1));
                    let now = state.now();
                    state.oracle.forced(*provider, *forced, now);
                });
                self.process.lanes().force_breaker(
                    &self.any_lane(0, *provider),
                    forced.map(|forced| (forced, self.order())),
                );
            }
            SimAction::CredentialLost(tenant) => world.with(|state| {
                state.note("credential", *tenant, "lost", 0);
                state.lost_credentials.insert(*tenant);
            }),
            SimAction::CredentialRenewed(tenant) => self.renew(*tenant),
            SimAction::Jump(ms) => self.jump(*ms).await,
            SimAction::Disk(fault) => world.with(|state| {
                state.note("disk", 0, "", fault.for_ms);
                state.disk.fault = Some((state.elapsed() + fault.for_ms, *fault));
            }),
            SimAction::Crash { how: PlannedCrash::Soon { polls }, down_ms } => {
                for _ in 0..*polls {
                    yield_now().await;
                }
                let soon = ProcessEnd::Crashed { down_ms: *down_ms, torn: false };
                return Ok(take_end(self.world).or(Some(soon)));
            }
            SimAction::Crash { how, down_ms } => {
                world.with(|state| state.disk.crash = Some((*how, *down_ms)));
            }
            SimAction::WorkerDies => self.replace_worker(None).await?,
            SimAction::WorkerLeaves { drain_ms } => self.replace_worker(Some(*drain_ms)).await?,
            // Ends the driver: see `drive`.
            SimAction::Restart { .. } => {}
            SimAction::Recount => self.recount().await?,
        }
        Ok(None)
    }

    /// Submits a request on its own task, as a server does.
    fn submit(&self, messages: &[usize]) {
        let world = self.world.clone();
        let intake = self.process.intake.clone();
        let messages = messages.to_vec();
        let first = &world.plan.messages[messages[0]];
        let tenant = world.plan.tenants[first.tenant].name.clone();
        let request =
            messages.iter().map(|&index| self.submission(&world.plan.messages[index])).collect();
        tokio::spawn(async move {
            let answers = intake.admit(&tenant, request).await;
            world.with(|state| {
                if state.dead {
                    return;
                }
                for (&message, answer) in messages.iter().zip(&answers) {
                    let (how, caller_answer) = match answer {
                        Ok(IntakeAnswer { message, duplicate, .. }) => {
                            let how = if *duplicate { "repeat" } else { "accepted" };
                            (how, CallerAnswer::Accepted(*message))
                        }
                        Err(_) => ("refused", CallerAnswer::Refused),
                    };
                    state.note("answered", message, how, 0);
                    let result = state.oracle.caller_answered(message, caller_answer);
                    state.report_violation(result);
                }
            });
        });
    }

    fn submission(&self, message: &PlannedMessage) -> Submission {
        let plan = &self.world.plan;
        let PlannedMessage { tenant, content, .. } = message;
        let address = |provider: usize, address: u64| {
            let channel = plan.providers[provider].kind.name();
            format!(
                r#"{{"channel":"{channel}","url":"https://p{provider}.sim/t{tenant}/a{address}"}}"#
            )
        };
        let mut to = format!(r#""address":{}"#, address(message.provider, message.address));
        if let Some((provider, other)) = message.fallback {
            to.push_str(&format!(r#","fallback":[{}]"#, address(provider, other)));
        }
        let class = &plan.classes[message.class].name;
        let mut body =
            format!(r#"{{"to":{{{to}}},"class":"{class}","content":{{"title":"{content}"}}"#);
        if let Some(ttl_s) = message.ttl_s {
            body.push_str(&format!(r#","ttl_s":{ttl_s}"#));
        }
        if let Some(at) = message.send_at_ms {
            // Counted from the start of the simulation: callers' clocks do not jump with the server's.
            let at = Timestamp(1_800_000_000_000 + at);
            body.push_str(&format!(r#","send_at":"{at}""#));
        }
        body.push('}');
        Submission {
            body: body.into(),
            idempotency_key: message.key.map(|key| format!("k{key}")),
            traceparent: None,
        }
    }

    async fn cancel(&self, planned: usize) -> Result<()> {
        let answer = self.world.state().oracle.caller_answers.get(&planned).copied();
        let Some(CallerAnswer::Accepted(message)) = answer else { return Ok(()) };
        self.process.store.cancel(None, message).await?;
        self.world.with(|state| state.note("cancel", planned, "", 0));
        self.world.with(|state| state.oracle.cancel_asked(message));
        self.refresh_records(|record| record.message == message, true).await
    }

    async fn replay(&self, ttl_s: Option<u32>, rate_per_s: Option<f64>) -> Result<()> {
        let filter = DeliveryFilter { limit: 10_000, ..DeliveryFilter::default() };
        let how = Replay { ttl_s, rate_per_s, ..Replay::default() };
        let count = self.process.store.replay(None, Selection::Filter(filter), how).await?;
        self.world.with(|state| state.note("replay", 0, "", count as i64));
        self.refresh_records(|record| record.state == State::Failed, false).await
    }

    /// Updates the oracle's records after an action of an operator.
    async fn refresh_records(
        &self,
        which: impl Fn(&DeliveryRecord) -> bool,
        cancelled: bool,
    ) -> Result<()> {
        let matching = self.world.state().oracle.matching(which);
        for (index, id) in matching {
            let ledger = self.process.store.delivery(None, id).await?;
            self.world.with(|state| {
                let result = state.oracle.operator_changed(index, ledger.as_ref(), cancelled);
                state.report_violation(result);
            });
        }
        Ok(())
    }

    fn order(&self) -> OperatorOrder {
        OperatorOrder::new("the simulation", self.world.clock.now())
    }

    async fn pause(&self, tenant: usize) -> Result<()> {
        let name = &self.world.plan.tenants[tenant].name;
        for lane in self.process.store.lanes(Some(name), 10_000).await? {
            let provider = number(&lane.key.provider);
            let class =
                self.world.plan.classes.iter().position(|class| class.name == lane.key.class);
            self.process.lanes().pause(lane.key.clone(), self.order());
            self.world.with(|state| {
                state.note("pause", tenant, "", provider as i64);
                let now = state.now();
                state.oracle.paused(tenant, provider, class.unwrap_or(0), now);
            });
        }
        Ok(())
    }

    fn resume(&self, tenant: usize) {
        let name = &self.world.plan.tenants[tenant].name;
        self.world.with(|state| {
            state.note("resume", tenant, "", 0);
            state.oracle.resumed(tenant);
        });
        for lane in self.process.lanes().paused_lanes() {
            if lane.key.tenant == *name {
                self.process.lanes().resume(&lane.key);
            }
        }
    }

    fn renew(&self, tenant: usize) {
        self.world.with(|state| {
            state.note("credential", tenant, "renewed", 0);
            state.lost_credentials.remove(&tenant);
            state.oracle.renewed(tenant);
        });
        self.process.lanes().credential_renewed(&self.world.plan.tenants[tenant].name);
    }

    fn any_lane(&self, tenant: usize, provider: usize) -> LaneKey {
        let plan = &self.world.plan;
        LaneKey {
            tenant: plan.tenants[tenant].name.clone(),
            channel: plan.providers[provider].kind,
            provider: format!("https://p{provider}.sim").into(),
            class: plan.classes[0].name.clone(),
        }
    }

    /// Lets every ready task read the clock first, then sets it.
    async fn jump(&self, ms: i64) {
        for _ in 0..64 {
            yield_now().await;
        }
        self.world.clock.jump(ms);
        self.world.with(|state| {
            state.note("jump", 0, "", ms);
            let now = state.now();
            state.oracle.jumped(now);
        });
    }

    async fn restart(mut self, drain_ms: u64, down_ms: i64) -> Result<ProcessEnd> {
        self.world.with(|state| state.note("restart", 0, "", down_ms));
        // Those that wait for work end first, so that none of them gets it.
        while let Some(worker) = self.process.workers.pop_back() {
            self.drain(worker, drain_ms).await;
        }
        Ok(take_end(self.world).unwrap_or(ProcessEnd::Restarted { down_ms }))
    }

    async fn drain(&self, worker: SimWorker, drain_ms: u64) {
        let drained = worker.dispatcher.drain(Duration::from_millis(drain_ms));
        tokio::pin!(drained);
        tokio::select! {
            biased;
            () = self.world.stop.notified() => self.world.stop.notify_one(),
            _ = &mut drained => {}
        }
    }

    /// The worker with the work ends: it hands over within that time, or dies. The next one goes on, and a new one
    /// waits behind the others.
    async fn replace_worker(&mut self, drain_ms: Option<u64>) -> Result<()> {
        if self.world.plan.workers < 2 {
            return Ok(());
        }
        let Some(worker) = self.process.workers.pop_front() else { return Ok(()) };
        let how = if drain_ms.is_some() { "leaves" } else { "dies" };
        self.world.with(|state| state.note("worker", 0, how, 0));
        match drain_ms {
            Some(drain_ms) => self.drain(worker, drain_ms).await,
            None => worker.dispatcher.kill().await,
        }
        if self.world.is_dead() {
            return Ok(());
        }
        self.world.with(|state| state.oracle.worker_replaced());
        self.process.add_worker(self.world).await
    }

    async fn recount(&self) -> Result<()> {
        let counts = self.process.store.counts(None).await?;
        let lanes = self.process.store.lanes(None, usize::MAX >> 1).await?;
        let load = self.process.store.load(None);
        self.world.with(|state| {
            let result = state.oracle.recount(&counts, &lanes, load);
            state.note("recount", 0, "", counts.messages as i64);
            state.report_violation(result);
        });
        Ok(())
    }

    /// No faults any more: every delivery ends, and oracle and store agree.
    async fn calm(mut self) -> Result<ProcessEnd> {
        self.end_all_faults();
        let jumps = self.world.plan.actions.iter().map(|(_, action)| match action {
            SimAction::Jump(ms) => ms.unsigned_abs(),
            _ => 0,
        });
        let ahead = self.world.plan.messages.iter().filter_map(|l| l.send_at_ms).max().unwrap_or(0);
        let ahead = Duration::from_millis((ahead - self.world.plan.calm_at_ms).max(0) as u64);
        let end = Instant::now() + CALM_MAX + ahead + Duration::from_millis(jumps.sum());
        while Instant::now() < end {
            if let Some(end) = take_end(self.world) {
                return Ok(end);
            }
            let counts = self.process.store.counts(None).await?;
            if counts.states.iter().all(|(state, count)| state.is_final() || *count == 0) {
                break;
            }
            sleep(POLL_EVERY).await;
        }
        self.recount().await?;
        self.check_all().await?;
        self.world.with(|state| state.note("over", 0, "", 0));
        let mut in_time = true;
        while let Some(worker) = self.process.workers.pop_back() {
            in_time &= worker.dispatcher.drain(Duration::from_secs(600)).await;
        }
        self.world.with(|state| {
            state.report_violation(check(in_time, "a quiet server stops at once", String::new));
        });
        Ok(ProcessEnd::Over)
    }

    fn end_all_faults(&self) {
        self.world.with(|state| {
            state.note("calm", 0, "", 0);
            state.disk = crate::world::SimDisk::default();
        });
        let lost: Vec<_> = self.world.state().lost_credentials.iter().copied().collect();
        lost.into_iter().for_each(|tenant| self.renew(tenant));
        (0..self.world.plan.tenants.len()).for_each(|tenant| self.resume_if_paused(tenant));
    }

    fn resume_if_paused(&self, tenant: usize) {
        let name = &self.world.plan.tenants[tenant].name;
        if self.process.lanes().paused_lanes().iter().any(|lane| lane.key.tenant == *name) {
            self.resume(tenant);
        }
    }

    async fn check_all(&self) -> Result<()> {
        let mut filter = DeliveryFilter { limit: 1_000, ..DeliveryFilter::default() };
        let mut ledger = HashMap::new();
        loop {
            let page = self.process.store.deliveries(filter.clone()).await?;
            ledger.extend(page.items.into_iter().map(|delivery| (delivery.id, delivery)));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        self.world.with(|state| {
            for (index, id) in state.oracle.matching(|_| true) {
                let result = state.oracle.compare(index, ledger.get(&id));
                state.report_violation(result.and_then(|()| state.oracle.check_end(index)));
            }
            let (found, expected) = (ledger.len(), state.oracle.deliveries.len());
            state.report_violation(check(
                found == expected,
                "only what was accepted is there",
                || format!("{expected} deliveries were accepted, {found} are in the store"),
            ));
        });
        Ok(())
    }
}

/// How the process ended, if the driver did not end it.
fn take_end(world: &World) -> Option<ProcessEnd> {
    let mut state = world.state();
    if state.violation.is_some() {
        return Some(ProcessEnd::Over);
    }
    let (how, down_ms) = state.disk.died.take()?;
    Some(ProcessEnd::Crashed { down_ms, torn: matches!(how, PlannedCrash::TornWrite { .. }) })
}
