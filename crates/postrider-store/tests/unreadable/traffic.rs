//! Messages of a seed, what became of them, and what must be true of the store in the end.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::{
    AddressLearning, Admission, DedupKey, LeasedDelivery, Ledger as _, NewMessage, Retention,
    SettleResult, Settlement,
};
use postrider_core::{Clock as _, DeadReason, Timestamp};
use postrider_store::conformance::{WorkingStore, batch, success};
use postrider_store::{ManualClock, StoreOptions};
use postrider_testkit::random::SimRng;

const LEASE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp(1_790_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);
const RETENTION: Duration = Duration::from_secs(12 * 3_600);
/// Rounds of an hour before the page is lost, and after it.
const ROUNDS_BEFORE: u64 = 20;
const ROUNDS_AFTER: u64 = 30;
/// Of the messages that come after it, so many in a hundred may be refused: those whose key was on the page.
const REFUSED_MAX: usize = 10;

/// Nearly everything is read from disk, and every chore has something to do.
fn open(dir: &Path, clock: &Arc<ManualClock>) -> WorkingStore {
    let options = StoreOptions {
        lane_window: 8,
        window_total: 16,
        delivery_cache_bytes: 0,
        page_cache_kib: 32,
        listed_at_once: 64,
        dedup_bucket_keys: 100,
        ..StoreOptions::default()
    };
    WorkingStore::open(dir, clock.clone(), options).unwrap()
}

pub(super) struct Traffic {
    rng: SimRng,
    store: WorkingStore,
    clock: Arc<ManualClock>,
    next_key: u64,
    /// Acknowledged messages, in a file beside the data: the number of each and the time of its accept.
    log: PathBuf,
    accepted: usize,
    refused: usize,
}

/// A store that was used for some hours, closed.
pub(super) async fn fill(dir: &Path, seed: u64) {
    std::fs::create_dir_all(dir).unwrap();
    let mut traffic = Traffic::open(dir, seed, START);
    for _ in 0..ROUNDS_BEFORE {
        traffic.round().await;
    }
    assert_eq!(traffic.refused, 0);
    traffic.store.close().await;
}

/// The same store for some hours more, on a disk with a bad page.
pub(super) async fn serve_with_fault(dir: &Path, seed: u64) {
    let mut traffic = Traffic::open(dir, seed + (1 << 40), START + HOUR * ROUNDS_BEFORE as u32);
    for _ in 0..ROUNDS_AFTER {
        traffic.round().await;
    }
    let (accepted, refused) = (traffic.accepted, traffic.refused);
    assert!(refused * 100 <= (accepted + refused) * REFUSED_MAX, "{refused} of {accepted} refused");
    traffic.store.close().await;
}

impl Traffic {
    fn open(dir: &Path, seed: u64, now: Timestamp) -> Self {
        let clock = Arc::new(ManualClock::at(now));
        Self {
            rng: SimRng::new(seed),
            store: open(dir, &clock),
            clock,
            next_key: seed << 20,
            log: dir.with_extension("log"),
            accepted: 0,
            refused: 0,
        }
    }

    /// An hour: new messages, deliveries of all kinds of ends, and the deletion of what is old.
    async fn round(&mut self) {
        for _ in 0..self.rng.within(1, 6) {
            self.accept().await;
            self.clock.advance(Duration::from_secs(1));
        }
        for _ in 0..self.rng.within(0, 3) {
            self.deliver().await;
        }
        self.clock.advance(HOUR);
        self.store.prune(&Retention::of(RETENTION)).await.unwrap();
    }

    async fn accept(&mut self) {
        let new: Vec<_> = (0..self.rng.within(1, 20)).map(|_| self.message()).collect();
        let count = new.len();
        match self.store.accept(new).await {
            Ok(answers) => {
                let mut log = OpenOptions::new().append(true).create(true).open(&self.log).unwrap();
                for answer in answers {
                    if let Admission::Accepted { message, .. } = answer {
                        let (number, at) = (order_key(message.0), self.clock.now().0);
                        writeln!(log, "{number} {at}").unwrap();
                        self.accepted += 1;
                    }
                }
            }
            Err(_) => self.refused += count,
        }
    }

    fn message(&mut self) -> NewMessage {
        let rng = &mut self.rng;
        let tenant = format!("tenant-{}", rng.below(4));
        let deliveries = if rng.below(8) == 0 { 3 } else { 1 };
        let numbers: Vec<u32> = (0..deliveries).map(|_| rng.below(12) as u32).collect();
        let mut new = batch(&tenant, &numbers);
        new.ttl_s = if rng.below(4) == 0 { 1_800 } else { 86_400 };
        new.content = "x".repeat(rng.within(10, 900) as usize).into();
        if rng.below(5) == 0 {
            new.envelope.tags = vec![format!("tag-{}", rng.below(9)).into()];
        }
        if rng.below(2) == 0 {
            self.next_key += 1;
            let key = u128::from(self.next_key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060);
            let window = HOUR * rng.within(1, 48) as u32;
            new.dedup = Some(DedupKey { key: key.to_le_bytes(), fingerprint: [1; 16], window });
        }
        new
    }

    /// One lease of each lane that is ready.
    async fn deliver(&mut self) {
        self.store.lease_expired(50, LEASE).await.unwrap();
        for lane in self.store.ready_lanes(100).await.unwrap() {
            let leased = self.store.lease(lane.id, 16, LEASE).await.unwrap();
            let settlements: Vec<_> = leased.iter().map(|leased| self.settlement(leased)).collect();
            // What cannot be settled is set aside and counted; the others are settled.
            let settled = self.store.settle(settlements).await.unwrap();
            let fenced = settled.iter().filter(|result| **result == SettleResult::Fenced).count();
            assert!(fenced <= 16, "{fenced} of {} cannot be settled", settled.len());
        }
    }

    fn settlement(&mut self, leased: &LeasedDelivery) -> Settlement {
        let decision = match self.rng.below(20) {
            0 => Decision::DeadLetter(DeadReason::Permanent),
            1..=4 => Decision::Retry { after: HOUR, counted: true },
            5 => Decision::Park { after: 5 * HOUR },
            _ => Decision::Done,
        };
        Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempts: vec![success(leased.tries + 1, self.clock.now())],
            decision,
            learned: AddressLearning::default(),
        }
    }

    /// With a disk that can be read again: what was acknowledged and is not old is there, and nothing else is.
    pub(super) async fn check(dir: &Path) -> Result<(), String> {
        let now = START + HOUR * (ROUNDS_BEFORE + ROUNDS_AFTER) as u32;
        let clock = Arc::new(ManualClock::at(now));
        let store = open(dir, &clock);
        let counts = store.counts(None).await.map_err(|error| error.to_string())?;
        store.close().await;
        drop(store);
        let log = std::fs::read_to_string(dir.with_extension("log")).unwrap();
        let acknowledged: BTreeMap<u64, i64> = log
            .lines()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(number, at)| (number.parse().unwrap(), at.parse().unwrap()))
            .collect();
        let conn = rusqlite::Connection::open(dir.join("postrider.db")).unwrap();
        let mut select = conn.prepare("SELECT seq FROM message").unwrap();
        let stored: Vec<u64> = select
            .query_map([], |row| row.get::<_, i64>(0))
            .unwrap()
            .map(|seq| seq.unwrap() as u64)
            .collect();
        let unknown = stored.iter().filter(|number| !acknowledged.contains_key(number)).count();
        let young = |at: i64| at > (now + HOUR - RETENTION).0;
        let lost = acknowledged
            .iter()
            .filter(|(number, at)| young(**at) && !stored.contains(number))
            .count();
        let counted = counts.messages as usize;
        if (unknown, lost) != (0, 0) {
            return Err(format!("{lost} lost, {unknown} were never acknowledged"));
        }
        // A page of changes that was lost before they were added up leaves the numbers wrong, which is reported.
        let is_right = stored.len() == counted || is_set_aside(&conn, "count_change");
        is_right.then_some(()).ok_or(format!("{counted} counted, {} there", stored.len()))
    }
}

fn is_set_aside(conn: &rusqlite::Connection, table: &str) -> bool {
    let select = "SELECT count(*) FROM sqlite_master WHERE name GLOB ?1 || '_damaged_*'";
    conn.query_row(select, [table], |row| row.get::<_, i64>(0)).unwrap() > 0
}
