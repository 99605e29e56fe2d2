//! The traffic: 64 messages in each of four calls, then everything that is due is sent. One message in twenty
//! has three deliveries, one repeats a key, one delivery in fifty is tried again an hour later, and one in a
//! thousand is buried.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::model::decision::Decision;
use postrider_core::model::message::Envelope;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::{
    AddressLearning, Admission, DedupKey, LeasedDelivery, NewDelivery, NewMessage, Settlement,
    StoreResult,
};
use postrider_core::{AddressHash, ChannelKind, Clock, DeadReason, LaneKey, Target, TenantId};
use postrider_store::ManualClock;
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::success;

use crate::report::Samples;
use crate::{DAY, io};

const CALLERS: usize = 4;
const BATCH: usize = 64;
const LANES: u64 = 200;
const TENANTS: u64 = 20;
const LEASE: Duration = Duration::from_secs(3_600);
const HOUR: Duration = Duration::from_secs(3_600);
const CONTENT: &str = r#"{"title":"Shipped","body":"Order 91 is on its way to you and will arrive tomorrow between nine and noon. Leave a note for the driver if you are out.","url":"https://shop.example/orders/91"}"#;

pub(crate) struct MonthLoad {
    store: Arc<WorkingStore>,
    clock: Arc<ManualClock>,
    lanes: Vec<Arc<LaneKey>>,
    /// Virtual time of one round.
    step: Duration,
    next: u64,
    next_chores: postrider_core::Timestamp,
    delivered: u64,
    /// The number of the first message of each of the last rounds, with its time.
    rounds: VecDeque<(postrider_core::Timestamp, u64)>,
}

impl MonthLoad {
    pub(crate) fn new(
        store: Arc<WorkingStore>,
        clock: Arc<ManualClock>,
        time: Duration,
        messages: u64,
    ) -> Self {
        let lane = |n: u64| {
            Arc::new(LaneKey {
                tenant: TenantId::new(&format!("tenant-{}", n % TENANTS)),
                channel: ChannelKind::new("webhook"),
                provider: format!("https://host-{n}.example").into(),
                class: "transactional".into(),
            })
        };
        let rounds = messages / (CALLERS * BATCH) as u64;
        Self {
            next_chores: clock.now() + HOUR,
            store,
            clock,
            lanes: (0..LANES).map(lane).collect(),
            step: time / u32::try_from(rounds).unwrap_or(u32::MAX),
            next: 1,
            delivered: 0,
            rounds: VecDeque::new(),
        }
    }

    pub(crate) fn hour_is_over(&mut self) -> bool {
        let over = self.clock.now() >= self.next_chores;
        if over {
            self.next_chores = self.clock.now() + HOUR;
        }
        over
    }

    pub(crate) async fn round(
        &mut self,
        samples: &mut Samples,
        chores: &AtomicBool,
    ) -> StoreResult<()> {
        self.clock.advance(self.step);
        let now = self.clock.now();
        self.rounds.push_back((now, self.next));
        while self.rounds.front().is_some_and(|(at, _)| *at < now - DAY) {
            self.rounds.pop_front();
        }
        let calls: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (store, new) = (self.store.clone(), self.batch());
                tokio::spawn(async move {
                    let start = Instant::now();
                    let answers = store.accept(new).await?;
                    StoreResult::Ok(((start, start.elapsed()), answers))
                })
            })
            .collect();
        let before = chores.load(Ordering::SeqCst);
        for call in calls {
            let (took, answers) = call.await.map_err(io)??;
            let repeats = answers.iter().filter(|a| matches!(a, Admission::Duplicate { .. }));
            samples.accepted(took, BATCH, repeats.count(), before || chores.load(Ordering::SeqCst));
        }
        self.deliver().await
    }

    /// Sends what is due.
    async fn deliver(&mut self) -> StoreResult<()> {
        loop {
            let mut settlements = Vec::new();
            for lane in self.store.ready_lanes(LANES as usize).await? {
                let leased = self.store.lease(lane.id, 64, LEASE).await?;
                settlements.extend(leased.into_iter().map(settlement));
            }
            if settlements.is_empty() {
                return Ok(());
            }
            self.delivered += settlements.len() as u64;
            self.store.settle(settlements).await?;
        }
    }

    /// Lets the writer finish its own chores.
    pub(crate) async fn rest(&mut self) -> StoreResult<()> {
        for _ in 0..2_000 {
            self.store.ready_lanes(1).await?;
            self.store.accept(Vec::new()).await?;
        }
        Ok(())
    }

    pub(crate) fn take_delivered(&mut self) -> u64 {
        std::mem::take(&mut self.delivered)
    }

    /// Idempotency keys of the last 24 hours.
    pub(crate) fn keys_in_window(&self) -> u64 {
        self.rounds.front().map_or(0, |(_, first)| self.next - first)
    }

    fn batch(&mut self) -> Vec<NewMessage> {
        (0..BATCH).map(|_| self.message()).collect()
    }

    fn message(&mut self) -> NewMessage {
        let number = match self.rounds.front() {
            // A key of the last 24 hours once more.
            Some((_, first)) if self.next.is_multiple_of(20) => {
                first + spread(self.next) as u64 % (self.next - first).max(1)
            }
            _ => self.next,
        };
        self.next += 1;
        let key = spread(number);
        let lane = &self.lanes[(key >> 64) as usize % self.lanes.len()];
        let count = if number.is_multiple_of(20) { 3 } else { 1 };
        let delivery = |n: u64| {
            let url = format!("{}/hook/{:032x}", lane.provider, spread(number + n));
            let target = Target::new(lane.channel, &serde_json::json!({ "url": url }));
            NewDelivery {
                lane: lane.clone(),
                target: Arc::new(target),
                hash: AddressHash(spread(number + n).to_le_bytes()),
                recipient: None,
                address: None,
                address_since: None,
                alternatives: Vec::new(),
                is_wide: false,
                region: None,
            }
        };
        NewMessage {
            tenant: lane.tenant.clone(),
            class: lane.class.clone(),
            ttl_s: 86_400,
            now_or_never: DISPATCH_WINDOW,
            member_keys: Vec::new(),
            send_at: None,
            envelope: Envelope::default(),
            content: CONTENT.into(),
            dedup: Some(DedupKey { key: key.to_le_bytes(), fingerprint: [1; 16], window: DAY }),
            deliveries: (0..count).map(delivery).collect(),
        }
    }
}

/// A number whose bits look random.
fn spread(number: u64) -> u128 {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let mixed = (mixed ^ (mixed >> 61)).wrapping_mul(0xd6e8_feb8_6659_fd93_a3d8_7a4b_91c5_1f2d);
    mixed ^ (mixed >> 67)
}

fn settlement(leased: LeasedDelivery) -> Settlement {
    let chance = leased.delivery.0 as u64 % 1_000;
    let decision = match chance {
        0 => Decision::DeadLetter(DeadReason::Permanent),
        1..=20 if leased.tries == 0 => Decision::Retry { after: HOUR, counted: true },
        _ => Decision::Done,
    };
    Settlement {
        delivery: leased.delivery,
        token: leased.token,
        attempts: vec![success(leased.tries + 1, leased.message.created_at)],
        decision,
        learned: AddressLearning::default(),
    }
}
