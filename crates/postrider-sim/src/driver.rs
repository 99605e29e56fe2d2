//! Carries out a plan upon a running process: traffic, an operator's acts, faults; then the calm, in
//! which everything has to come to its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider_core::ports::store::{Admission, DeliveryFilter, Replay, Selection};
use postrider_core::{Clock, LaneKey, State, Timestamp};
use postrider_dispatch::Submission;
use postrider_dispatch::lanes::OperatorOrder;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::life::{Process, number};
use crate::oracle::{Known, Told, promise};
use crate::plan::{Act, Crash, Letter};
use crate::world::World;

/// Why a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With everything but the disk; the disk too lost what was being written, if torn.
    Crashed {
        down_ms: i64,
        torn: bool,
    },
    Restarted {
        down_ms: i64,
    },
    /// The plan is done, or a promise was broken.
    Over,
}

/// So long after the last fault everything must have come to its end, clock jumps aside: the longest
/// wish of an address to be left alone (an hour), the longest open breaker, rests and retries.
const CALM_MAX: Duration = Duration::from_secs(3 * 3600);
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Driver<'a> {
    world: &'a Arc<World>,
    process: Process,
    next_act: &'a mut usize,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(world: &'a Arc<World>, process: Process, next_act: &'a mut usize) -> Self {
        Self { world, process, next_act }
    }

    pub(crate) async fn drive(self) -> Result<End> {
        while let Some((at, act)) = self.world.plan.acts.get(*self.next_act) {
            if let Some(end) = self.pass_until(*at).await {
                return Ok(end);
            }
            *self.next_act += 1;
            if let Act::Restart { patience_ms, down_ms } = act {
                return self.restart(*patience_ms, *down_ms).await;
            }
            if let Some(end) = self.act(act).await? {
                return Ok(end);
            }
        }
        if let Some(end) = self.pass_until(self.world.plan.calm_at_ms).await {
            return Ok(end);
        }
        self.calm().await
    }

    /// Lets time pass; answers how the life ended if it did meanwhile.
    async fn pass_until(&self, at_ms: i64) -> Option<End> {
        let left = at_ms - self.world.clock.elapsed();
        let left = Duration::from_millis(left.max(0) as u64);
        let _ = timeout(left, self.world.stop.notified()).await;
        has_ended(self.world)
    }

    async fn act(&self, act: &Act) -> Result<Option<End>> {
        let world = self.world;
        match act {
            Act::Submit(letters) => self.submit(letters),
            Act::Cancel(letter) => self.cancel(*letter).await?,
            Act::Replay { ttl_s, rate_per_s } => self.replay(*ttl_s, *rate_per_s).await?,
            Act::Pause(tenant) => self.pause(*tenant).await?,
            Act::Resume(tenant) => self.resume(*tenant),
            Act::Force { provider, forced } => {
                world.with(|state| {
                    state.note("force", *provider, "", forced.map_or(0, |f| f as i64 + 1));
                    let now = state.now();
                    state.oracle.forced(*provider, *forced, now);
                });
                self.process.lanes.force_breaker(
                    &self.any_lane(0, *provider),
                    forced.map(|forced| (forced, self.order())),
                );
            }
            Act::CredentialLost(tenant) => world.with(|state| {
                state.note("credential", *tenant, "lost", 0);
                state.lost_credentials.insert(*tenant);
            }),
            Act::CredentialRenewed(tenant) => self.renew(*tenant),
            Act::Jump(ms) => self.jump(*ms).await,
            Act::Disk(fault) => world.with(|state| {
                state.note("disk", 0, "", fault.for_ms);
                state.disk.fault = Some((state.elapsed() + fault.for_ms, *fault));
            }),
            Act::Crash { how: Crash::Soon { polls }, down_ms } => {
                for _ in 0..*polls {
                    yield_now().await;
                }
                let soon = End::Crashed { down_ms: *down_ms, torn: false };
                return Ok(has_ended(self.world).or(Some(soon)));
            }
            Act::Crash { how, down_ms } => {
                world.with(|state| state.disk.crash = Some((*how, *down_ms)));
            }
            // Ends the driver: see `drive`.
            Act::Restart { .. } => {}
            Act::Recount => self.recount().await?,
        }
        Ok(None)
    }

    /// A request on its own task, as a server would have it.
    fn submit(&self, letters: &[usize]) {
        let world = self.world.clone();
        let intake = self.process.intake.clone();
        let letters = letters.to_vec();
        let first = &world.plan.letters[letters[0]];
        let tenant = world.plan.tenants[first.tenant].name.clone();
        let request = letters.iter().map(|&index| self.write(&world.plan.letters[index])).collect();
        tokio::spawn(async move {
            let answers = intake.admit(&tenant, request).await;
            world.with(|state| {
                if state.dead {
                    return;
                }
                for (&letter, answer) in letters.iter().zip(&answers) {
                    let (how, told) = match answer {
                        Ok(Admission::Accepted { message, .. }) => {
                            ("accepted", Told::Accepted(*message))
                        }
                        Ok(Admission::Duplicate { message, .. }) => {
                            ("repeat", Told::Accepted(*message))
                        }
                        Ok(Admission::Conflict { .. }) => ("conflict", Told::Refused(409)),
                        Err(refusal) => ("refused", Told::Refused(refusal.status)),
                    };
                    state.note("answered", letter, how, 0);
                    let judged = state.oracle.told(letter, told);
                    state.blame(judged);
                }
            });
        });
    }

    fn write(&self, letter: &Letter) -> Submission {
        let plan = &self.world.plan;
        let Letter { tenant, says, .. } = letter;
        let address = |provider: usize, address: u64| {
            let channel = plan.providers[provider].kind.name();
            format!(
                r#"{{"channel":"{channel}","url":"https://p{provider}.sim/t{tenant}/a{address}"}}"#
            )
        };
        let mut to = format!(r#""address":{}"#, address(letter.provider, letter.address));
        if let Some((provider, other)) = letter.fallback {
            to.push_str(&format!(r#","fallback":[{}]"#, address(provider, other)));
        }
        let class = &plan.classes[letter.class].name;
        let mut body =
            format!(r#"{{"to":{{{to}}},"class":"{class}","content":{{"title":"{says}"}}"#);
        if let Some(ttl_s) = letter.ttl_s {
            body.push_str(&format!(r#","ttl_s":{ttl_s}"#));
        }
        if let Some(at) = letter.send_at_ms {
            // By the calendar of the beginning: callers' clocks do not jump with the server's.
            let at = Timestamp(1_800_000_000_000 + at);
            body.push_str(&format!(r#","send_at":"{at}""#));
        }
        body.push('}');
        Submission {
            body: body.into(),
            idempotency_key: letter.key.map(|key| format!("k{key}")),
            traceparent: None,
        }
    }

    async fn cancel(&self, letter: usize) -> Result<()> {
        let Some(Told::Accepted(message)) = self.world.state().oracle.told.get(&letter).copied()
        else {
            return Ok(());
        };
        self.process.store.cancel(None, message).await?;
        self.world.with(|state| state.note("cancel", letter, "", 0));
        self.world.with(|state| state.oracle.cancel_asked(message));
        self.read_again(|known| known.message == message, true).await
    }

    async fn replay(&self, ttl_s: Option<u32>, rate_per_s: Option<f64>) -> Result<()> {
        let filter = DeliveryFilter { limit: 10_000, ..DeliveryFilter::default() };
        let how = Replay { ttl_s, rate_per_s, retry: None };
        let count = self.process.store.replay(None, Selection::Filter(filter), how).await?;
        self.world.with(|state| state.note("replay", 0, "", count as i64));
        self.read_again(|known| known.state == State::Failed, false).await
    }

    /// Takes over into the book what a person's act changed.
    async fn read_again(&self, which: impl Fn(&Known) -> bool, cancelled: bool) -> Result<()> {
        let chosen = self.world.state().oracle.chosen(which);
        for (index, id) in chosen {
            let ledger = self.process.store.delivery(None, id).await?;
            self.world.with(|state| {
                let judged = state.oracle.acted_upon(index, ledger.as_ref(), cancelled);
                state.blame(judged);
            });
        }
        Ok(())
    }

    fn order(&self) -> OperatorOrder {
        OperatorOrder { by: "the simulation".into(), at: self.world.clock.now() }
    }

    async fn pause(&self, tenant: usize) -> Result<()> {
        let name = &self.world.plan.tenants[tenant].name;
        for lane in self.process.store.lanes(Some(name), 10_000).await? {
            let provider = number(&lane.key.provider);
            let class =
                self.world.plan.classes.iter().position(|class| class.name == lane.key.class);
            self.process.lanes.pause(lane.id, lane.key.clone(), self.order());
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
        for lane in self.process.lanes.paused_lanes() {
            if lane.key.tenant == *name {
                self.process.lanes.resume(&lane.key);
            }
        }
    }

    fn renew(&self, tenant: usize) {
        self.world.with(|state| {
            state.note("credential", tenant, "renewed", 0);
            state.lost_credentials.remove(&tenant);
            state.oracle.renewed(tenant);
        });
        self.process.lanes.credential_renewed(&self.world.plan.tenants[tenant].name);
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

    /// Between two instructions of everyone else: whatever was ready has looked at the clock already.
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

    async fn restart(self, patience_ms: u64, down_ms: i64) -> Result<End> {
        self.world.with(|state| state.note("restart", 0, "", down_ms));
        let drained = self.process.dispatcher.drain(Duration::from_millis(patience_ms));
        tokio::pin!(drained);
        tokio::select! {
            biased;
            () = self.world.stop.notified() => {}
            _ = &mut drained => {}
        }
        Ok(has_ended(self.world).unwrap_or(End::Restarted { down_ms }))
    }

    async fn recount(&self) -> Result<()> {
        let counts = self.process.store.counts(None).await?;
        let lanes = self.process.store.lanes(None, usize::MAX >> 1).await?;
        let load = self.process.store.load(None);
        self.world.with(|state| {
            let judged = state.oracle.recount(&counts, &lanes, load);
            state.note("recount", 0, "", counts.messages as i64);
            state.blame(judged);
        });
        Ok(())
    }

    /// Nothing is wrong any more: everything comes to its end, and the books agree.
    async fn calm(self) -> Result<End> {
        self.all_is_well();
        let jumps = self.world.plan.acts.iter().map(|(_, act)| match act {
            Act::Jump(ms) => ms.unsigned_abs(),
            _ => 0,
        });
        let ahead = self.world.plan.letters.iter().filter_map(|l| l.send_at_ms).max().unwrap_or(0);
        let ahead = Duration::from_millis((ahead - self.world.plan.calm_at_ms).max(0) as u64);
        let end = Instant::now() + CALM_MAX + ahead + Duration::from_millis(jumps.sum());
        while Instant::now() < end {
            if let Some(end) = has_ended(self.world) {
                return Ok(end);
            }
            let counts = self.process.store.counts(None).await?;
            if counts.states.iter().all(|(state, count)| state.is_final() || *count == 0) {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        self.recount().await?;
        self.judge_all().await?;
        self.world.with(|state| state.note("over", 0, "", 0));
        let in_time = self.process.dispatcher.drain(Duration::from_secs(600)).await;
        self.world.with(|state| {
            state.blame(promise(in_time, "a quiet server stops at once", String::new));
        });
        Ok(End::Over)
    }

    fn all_is_well(&self) {
        self.world.with(|state| {
            state.note("calm", 0, "", 0);
            state.disk = crate::world::Disk::default();
        });
        let lost: Vec<_> = self.world.state().lost_credentials.iter().copied().collect();
        lost.into_iter().for_each(|tenant| self.renew(tenant));
        (0..self.world.plan.tenants.len()).for_each(|tenant| self.resume_quietly(tenant));
    }

    fn resume_quietly(&self, tenant: usize) {
        let name = &self.world.plan.tenants[tenant].name;
        if self.process.lanes.paused_lanes().iter().any(|lane| lane.key.tenant == *name) {
            self.resume(tenant);
        }
    }

    async fn judge_all(&self) -> Result<()> {
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
            for (index, id) in state.oracle.chosen(|_| true) {
                let judged = state.oracle.compare(index, ledger.get(&id));
                state.blame(judged.and_then(|()| state.oracle.judge_end(index)));
            }
            let (found, book) = (ledger.len(), state.oracle.deliveries.len());
            state.blame(promise(found == book, "only what was accepted is there", || {
                format!("{book} deliveries were accepted, {found} are in the store")
            }));
        });
        Ok(())
    }
}

/// How the life ended, if it did without being told to.
fn has_ended(world: &World) -> Option<End> {
    let mut state = world.state();
    if state.violation.is_some() {
        return Some(End::Over);
    }
    let (how, down_ms) = state.disk.died.take()?;
    Some(End::Crashed { down_ms, torn: matches!(how, Crash::TornWrite { .. }) })
}
