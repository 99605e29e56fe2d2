//! Moves everything from one store to another, over the ports alone. Goes on where it was interrupted, and reads the
//! new store again at the end. Names no engine.

mod totals;

use aws_lc_rs::digest;
use postrider_core::Timestamp;
use postrider_core::ports::store::{
    Document, DocumentRecord, Documents, RecordKind, StoreError, StoreRecord, StoreResult,
    StoreTransfer,
};
use serde::{Deserialize, Serialize};

pub use totals::{RecordTotal, RecordTotals};

/// Under this name the new store knows how far it is. No server uses a store that has it.
const INCOMING: &str = "migration/incoming";
/// Under this name the old store knows that it is being moved, or was.
const OUTGOING: &str = "migration/outgoing";
/// The key under which a store hashes addresses: its own, since its first start.
const OWN_KEY: &str = "key/signing/-/hash";
/// Records of one transaction.
const BATCH: usize = 2_000;

/// A store that can be moved to another engine.
pub trait MigratableStore: Documents + StoreTransfer {}

impl<T: Documents + StoreTransfer> MigratableStore for T {}

/// What a migration does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationPhase {
    Copying,
    /// Reads the new store.
    Verifying,
}

/// How far a migration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationProgress {
    pub phase: MigrationPhase,
    pub kind: RecordKind,
    /// Records of all kinds in this phase.
    pub records: u64,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// It went on from an interrupted one.
    pub resumed: bool,
    pub totals: RecordTotals,
}

/// What the new store knows of its migration, written with each batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct MigrationState {
    /// Names the old store.
    source: String,
    /// Idempotency keys that were over by then are left out.
    over_by: Timestamp,
    /// What comes next; absent once everything is copied.
    kind: Option<RecordKind>,
    after: Option<String>,
    totals: RecordTotals,
}

/// What the old store knows of its migration.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OutgoingState {
    /// As the operator named it.
    to: String,
    is_done: bool,
}

/// Moves everything. `to_name` is what the old store calls the new one. The new store is empty, or has a part of the
/// same migration. Nobody uses either store meanwhile.
pub async fn migrate(
    from: &dyn MigratableStore,
    to: &dyn MigratableStore,
    to_name: &str,
    now: Timestamp,
    progress: &mut (dyn FnMut(MigrationProgress) + Send),
) -> StoreResult<MigrationReport> {
    let source = identity(from).await?;
    let known = document(to, INCOMING).await?;
    let known: Option<MigrationState> = known.map(|text| parse(&text)).transpose()?;
    let resumed = known.is_some();
    let mut state = match known {
        Some(state) if state.source == source => state,
        Some(_) => return Err(refusal("the new store has a part of another store; use a new one")),
        None if !is_empty(to, now).await? => {
            return Err(refusal("the new store is not empty; use a new one"));
        }
        None => MigrationState {
            source,
            over_by: now,
            kind: RecordKind::ALL.first().copied(),
            after: None,
            totals: RecordTotals::default(),
        },
    };
    to.put_document(INCOMING, Some(&json(&state)?), None, None).await?;
    mark_outgoing(from, to_name, false).await?;
    while let Some(kind) = state.kind {
        copy_batch(from, to, &mut state, kind).await?;
        let records = state.totals.records();
        progress(MigrationProgress { phase: MigrationPhase::Copying, kind, records });
    }
    verify(to, &state, progress).await?;
    // From here on the old store is not used any more, and then the new one may be.
    mark_outgoing(from, to_name, true).await?;
    to.put_document(INCOMING, None, None, None).await?;
    Ok(MigrationReport { resumed, totals: state.totals })
}

/// Copies some records, and in the same transaction notes how far it is.
async fn copy_batch(
    from: &dyn MigratableStore,
    to: &dyn MigratableStore,
    state: &mut MigrationState,
    kind: RecordKind,
) -> StoreResult<()> {
    let page = from.export(kind, state.after.as_deref(), BATCH, state.over_by).await?;
    let mut records: Vec<_> = page.records.into_iter().filter(|record| !is_ours(record)).collect();
    let mut next = state.clone();
    for record in &records {
        next.totals.add(record)?;
    }
    next.after = page.next;
    if next.after.is_none() {
        let mut later = RecordKind::ALL.iter().skip_while(|known| **known != kind);
        next.kind = later.nth(1).copied();
    }
    let (name, json) = (INCOMING.to_owned(), json(&next)?);
    records.push(StoreRecord::Document(DocumentRecord { name, json, expires_at: None }));
    to.import(records).await?;
    *state = next;
    Ok(())
}

/// Reads the new store and compares counts and checksums with what was copied.
async fn verify(
    to: &dyn MigratableStore,
    state: &MigrationState,
    progress: &mut (dyn FnMut(MigrationProgress) + Send),
) -> StoreResult<()> {
    let mut found = RecordTotals::default();
    for &kind in RecordKind::ALL {
        let mut after = None;
        loop {
            let page = to.export(kind, after.as_deref(), BATCH, state.over_by).await?;
            for record in page.records.iter().filter(|record| !is_ours(record)) {
                found.add(record)?;
            }
            let (phase, records) = (MigrationPhase::Verifying, found.records());
            progress(MigrationProgress { phase, kind, records });
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    match found.difference(&state.totals) {
        None => Ok(()),
        Some(what) => Err(StoreError::Corrupt {
            what: format!("the new store is not what was copied: {what}; delete it and begin anew"),
            cause: None,
        }),
    }
}

/// An error if a server must not use the store: it is the unfinished end of a migration, or was moved away.
pub async fn check_usable(store: &dyn Documents) -> StoreResult<()> {
    if document(store, INCOMING).await?.is_some() {
        return Err(refusal(
            "it is the new store of a migration that is not finished; run the same `postrider migrate-store` again",
        ));
    }
    let Some(text) = document(store, OUTGOING).await? else { return Ok(()) };
    let outgoing: OutgoingState = parse(&text)?;
    let verb = if outgoing.is_done { "was" } else { "is being" };
    Err(refusal(&format!(
        "it {verb} moved to {}: sending from both would send twice; use that one, or give this one back with \
         `postrider migrate-store --reopen`",
        outgoing.to
    )))
}

/// Lets a store be used again that was moved, or was to be moved. False if that was not so.
pub async fn reopen(store: &dyn Documents) -> StoreResult<bool> {
    let was = document(store, OUTGOING).await?.is_some();
    if was {
        store.put_document(OUTGOING, None, None, None).await?;
    }
    Ok(was)
}

async fn mark_outgoing(from: &dyn Documents, to: &str, is_done: bool) -> StoreResult<()> {
    let text = json(&OutgoingState { to: to.to_owned(), is_done })?;
    from.put_document(OUTGOING, Some(&text), None, None).await.map(drop)
}

/// Names a store: the hash of its own key. Empty if it has none yet.
async fn identity(store: &dyn Documents) -> StoreResult<String> {
    let Some(text) = document(store, OWN_KEY).await? else { return Ok(String::new()) };
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    Ok(digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

async fn is_empty(store: &dyn MigratableStore, now: Timestamp) -> StoreResult<bool> {
    for &kind in RecordKind::ALL {
        if !store.export(kind, None, 1, now).await?.records.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Documents of the migration itself are not moved.
fn is_ours(record: &StoreRecord) -> bool {
    matches!(record, StoreRecord::Document(DocumentRecord { name, .. }) if name == INCOMING || name == OUTGOING)
}

async fn document(store: &dyn Documents, name: &str) -> StoreResult<Option<String>> {
    let mut found = store.documents(name).await?.into_iter();
    Ok(found.find(|document| document.name == name).and_then(|Document { json, .. }| json))
}

fn json(value: &impl Serialize) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::io("cannot write JSON", error))
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|_| StoreError::Corrupt {
        what: "what the store knows of its migration is not readable".to_owned(),
        cause: None,
    })
}

fn refusal(what: &str) -> StoreError {
    StoreError::Unusable { what: what.to_owned() }
}
