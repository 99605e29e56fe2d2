//! Writes the audit log: one task per server chains what waits and appends it in one write. Servers that share a store
//! find one order by the number of the next entry, which only one of them gets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::ports::store::{AuditFilter, AuditRecord, Store, StoreError, StoreResult};
use postrider_core::{Clock, Timestamp};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::chain::{ChainLink, PRUNE};
use super::entry::{ChainedEntry, NO_HASH, NewAuditEntry};
use super::refusals::RefusalCounts;
use crate::telemetry::Metrics;

/// Entries that wait to be written.
const WAITING_MAX: usize = 4_096;
/// Entries of one write.
const AT_ONCE: usize = 256;
/// So often other servers may be faster before a write is given up.
const TRIES: usize = 20;
/// A call waits so long for its entry.
const PATIENCE: Duration = Duration::from_secs(10);
/// Counted refusals are looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Entries that are read at once while old ones are looked for.
const PAGE: usize = 1_000;

struct WaitingEntry {
    new: NewAuditEntry,
    written: Option<oneshot::Sender<bool>>,
}

/// The way to the log.
pub struct AuditTrail {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    waiting: mpsc::Sender<WaitingEntry>,
    refusals: Mutex<RefusalCounts>,
}

impl AuditTrail {
    /// Starts the task that writes. It ends with the trail.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let (waiting, entries) = mpsc::channel(WAITING_MAX);
        let refusals = Mutex::new(RefusalCounts::new(Instant::now()));
        let writer = AuditWriter { store: store.clone(), last: None };
        let trail = Arc::new(Self { store, clock, metrics, waiting, refusals });
        let task = tokio::spawn(writer.run(entries));
        (trail, task)
    }

    /// Writes an entry. True once it is durable, false if that cannot be done.
    pub(crate) async fn write(&self, new: NewAuditEntry) -> bool {
        let (written, is_written) = oneshot::channel();
        let entry = WaitingEntry { new, written: Some(written) };
        let done = async { self.waiting.send(entry).await.is_ok() && is_written.await == Ok(true) };
        let done = tokio::time::timeout(PATIENCE, done).await == Ok(true);
        self.metrics.audited(done);
        if !done {
            tracing::error!("an entry of the audit log could not be written");
        }
        done
    }

    /// Counts a call that was refused. The first of its kind is written soon.
    pub(crate) fn refused(&self, new: NewAuditEntry) {
        if let Some(new) = self.counted(|counts| counts.add(new)) {
            self.write_soon(new);
        }
    }

    /// Looks for counted refusals whose time is over, for ever.
    pub(crate) async fn keep_counting(self: Arc<Self>) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        loop {
            every.tick().await;
            for new in self.counted(|counts| counts.take_if_over(Instant::now())) {
                self.write_soon(new);
            }
        }
    }

    /// Writes what is counted. For the end of the server.
    pub(crate) async fn flush(&self) {
        for new in self.counted(|counts| counts.take(Instant::now())) {
            self.write(new).await;
        }
    }

    fn write_soon(&self, new: NewAuditEntry) {
        let is_taken = self.waiting.try_send(WaitingEntry { new, written: None }).is_ok();
        self.metrics.audited(is_taken);
    }

    fn counted<T>(&self, change: impl FnOnce(&mut RefusalCounts) -> T) -> T {
        change(&mut self.refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Deletes entries older than this. An entry says so first, with the hash of the last deleted one, so that the
    /// chain can still be checked. Answers how many.
    pub(crate) async fn prune(&self, retention: Duration) -> StoreResult<u64> {
        let Some(last) = self.last_before(self.clock.now() - retention).await? else {
            return Ok(0);
        };
        let new = NewAuditEntry {
            at: self.clock.now(),
            action: PRUNE.to_owned(),
            subject: Some(format!("entries up to {}", last.number)),
            after: Some(json!({"upto": last.number, "hash": last.hash})),
            count: 1,
            outcome: "done".to_owned(),
            ..NewAuditEntry::default()
        };
        match self.write(new).await {
            true => self.store.prune_audit(last.number).await,
            false => Ok(0),
        }
    }

    /// The last of the entries that are older than this.
    async fn last_before(&self, over_by: Timestamp) -> StoreResult<Option<ChainLink>> {
        let (mut found, mut after) = (None, 0);
        loop {
            let page = self.store.audit_records(AuditFilter::behind(after, PAGE)).await?;
            let old = page.iter().take_while(|record| record.at < over_by).last();
            if let Some(old) = old {
                found = Some(link(old)?);
                after = old.number;
            }
            if page.last().map(|record| record.number) != Some(after) || page.len() < PAGE {
                return Ok(found);
            }
        }
    }
}

fn link(record: &AuditRecord) -> StoreResult<ChainLink> {
    let chained = ChainedEntry::parse(&record.text).map_err(|error| StoreError::Corrupt {
        what: format!("entry {} of the audit log: {error}", record.number),
        cause: None,
    })?;
    Ok(ChainLink { number: record.number, hash: chained.hash })
}

struct AuditWriter {
    store: Arc<dyn Store>,
    /// The last entry that is known.
    last: Option<ChainLink>,
}

impl AuditWriter {
    async fn run(mut self, mut entries: mpsc::Receiver<WaitingEntry>) {
        let mut taken = Vec::with_capacity(AT_ONCE);
        while entries.recv_many(&mut taken, AT_ONCE).await > 0 {
            let written = match self.append(&taken).await {
                Ok(written) => written,
                Err(error) => {
                    tracing::error!(%error, "the audit log cannot be written");
                    self.last = None;
                    false
                }
            };
            for reply_to in taken.drain(..).filter_map(|entry| entry.written) {
                // A caller that went away does not matter.
                let _ = reply_to.send(written);
            }
        }
    }

    /// Appends behind whatever other servers have appended.
    async fn append(&mut self, entries: &[WaitingEntry]) -> StoreResult<bool> {
        let ids: Vec<_> = entries.iter().map(|_| random_id()).collect();
        for _ in 0..TRIES {
            let last = match self.last.take() {
                Some(last) => last,
                None => self.find_last().await?,
            };
            let (records, end) = chain(entries, &ids, last)?;
            // A lost answer is asked for again; the store knows records that it has.
            let written = match self.store.append_audit(records.clone()).await {
                Err(_) => self.store.append_audit(records).await?,
                Ok(written) => written,
            };
            if written {
                self.last = Some(end);
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn find_last(&self) -> StoreResult<ChainLink> {
        let last = self.store.audit_records(AuditFilter::last()).await?;
        let none = || Ok(ChainLink { number: 0, hash: NO_HASH.to_owned() });
        last.first().map_or_else(none, link)
    }
}

/// The records behind `last`, and the last of them.
fn chain(
    entries: &[WaitingEntry],
    ids: &[String],
    mut last: ChainLink,
) -> StoreResult<(Vec<AuditRecord>, ChainLink)> {
    let mut records = Vec::with_capacity(entries.len());
    for (entry, id) in entries.iter().zip(ids) {
        let chained = entry.new.chained(last.number + 1, &last.hash, id);
        let (record, hash) =
            chained.map_err(|error| StoreError::io("cannot write an entry as JSON", error))?;
        last = ChainLink { number: record.number, hash };
        records.push(record);
    }
    Ok((records, last))
}

fn random_id() -> String {
    let mut bytes = [0; 8];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        tracing::error!("the system gives no random numbers");
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
