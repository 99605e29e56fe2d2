//! Problems as documents of the store.

use std::time::Duration;

use postrider_core::policy::problems::{ProblemChange, ProblemRecord};
use postrider_core::ports::store::{Document, DocumentVersion, Documents, PutResult, StoreResult};

const PREFIX: &str = "problem/";
/// How long a resolved problem is kept.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Tries to change a problem that others change at the same time.
const TRIES: usize = 5;

/// A problem with the version of its document.
#[derive(Debug, Clone)]
pub(crate) struct KeptProblem {
    pub(crate) record: ProblemRecord,
    pub(crate) version: DocumentVersion,
}

/// A problem that opened or was resolved.
#[derive(Debug, Clone)]
pub(crate) struct ProblemNews {
    pub(crate) change: ProblemChange,
    pub(crate) record: ProblemRecord,
}

pub(super) fn name_of(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// All problems that are kept, open ones first, then the newest.
pub(crate) async fn kept_problems(
    store: &(impl Documents + ?Sized),
) -> StoreResult<Vec<KeptProblem>> {
    let documents = store.documents(PREFIX).await?;
    let mut all: Vec<_> = documents.iter().filter_map(read).collect();
    all.sort_by_key(|kept| {
        let record = &kept.record;
        let severity = std::cmp::Reverse(record.severity);
        (
            !record.is_open(),
            record.is_open().then_some(severity),
            std::cmp::Reverse(record.opened_at),
        )
    });
    Ok(all)
}

fn read(document: &Document) -> Option<KeptProblem> {
    let record = serde_json::from_str(document.json.as_deref()?);
    let record = record.inspect_err(|error| {
        tracing::error!(document = document.name, %error, "a problem cannot be read");
    });
    Some(KeptProblem { record: record.ok()?, version: document.version })
}

/// Writes a problem if it has still this version. False if somebody changed it meanwhile.
pub(super) async fn write(
    store: &(impl Documents + ?Sized),
    record: &ProblemRecord,
    expected: DocumentVersion,
) -> StoreResult<bool> {
    let Ok(json) = serde_json::to_string(record) else { return Ok(false) };
    let ttl = (!record.is_open()).then_some(KEPT);
    let put = store.put_document(&name_of(&record.id), Some(&json), Some(expected), ttl).await?;
    Ok(matches!(put, PutResult::Written(_)))
}

pub(super) async fn delete(store: &(impl Documents + ?Sized), id: &str) -> StoreResult<()> {
    store.put_document(&name_of(id), None, None, None).await.map(drop)
}

/// Changes a problem that `may_change` allows, however many others change it at the same time. Answers the new state,
/// or none if there is no such problem.
pub(crate) async fn change_kept(
    store: &(impl Documents + ?Sized),
    id: &str,
    may_change: impl Fn(&ProblemRecord) -> bool,
    change: impl Fn(&mut ProblemRecord),
) -> StoreResult<Option<ProblemRecord>> {
    for _ in 0..TRIES {
        let documents = store.documents(&name_of(id)).await?;
        let own = documents.iter().find(|document| document.name == name_of(id));
        let Some(mut kept) = own.and_then(read).filter(|kept| may_change(&kept.record)) else {
            return Ok(None);
        };
        change(&mut kept.record);
        if write(store, &kept.record, kept.version).await? {
            return Ok(Some(kept.record));
        }
    }
    Err(postrider_core::ports::store::StoreError::Io {
        what: format!("the problem {id} is changed by others all the time"),
        cause: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use postrider_core::Timestamp;
    use postrider_core::policy::problems::{ProblemKey, ProblemKind, ProblemSign};
    use postrider_store::{ManualClock, MemoryStore};

    #[tokio::test]
    async fn a_change_of_an_operator_is_not_overwritten_by_an_older_look() {
        let store = MemoryStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let key = ProblemKey::of_server(ProblemKind::Lag, "");
        let sign = ProblemSign::new(key, 1, "late".to_owned());
        let record = ProblemRecord::new(&sign, Timestamp(1_000), Timestamp(1_000));
        assert!(write(&store, &record, DocumentVersion::NONE).await.unwrap());
        let seen = kept_problems(&store).await.unwrap().remove(0);
        let yes = |_: &ProblemRecord| true;
        let raise = |record: &mut ProblemRecord| record.count = 7;
        assert!(change_kept(&store, &record.id, yes, raise).await.unwrap().is_some());
        assert!(!write(&store, &seen.record, seen.version).await.unwrap());
        assert_eq!(kept_problems(&store).await.unwrap()[0].record.count, 7);
        let none = change_kept(&store, "prb_0", yes, raise).await.unwrap();
        assert!(none.is_none());
        delete(&store, &record.id).await.unwrap();
        assert!(kept_problems(&store).await.unwrap().is_empty());
    }
}
