//! Jobs as documents of the store.

use std::time::Duration;

use postrider_core::TenantId;
use postrider_core::ports::store::{
    Document, DocumentVersion, Documents, PutResult, StoreError, StoreResult,
};

use super::record::{JobRecord, JobState};

const PREFIX: &str = "job/";
/// How long a job is kept after its end.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Ended jobs of a tenant that are kept. The oldest go first.
const ENDED_MAX: usize = 100;
/// Jobs of a tenant that have not ended.
pub(crate) const OPEN_MAX: usize = 10;
/// Tries to change a job that others change at the same time.
const TRIES: usize = 8;

/// A job with the version of its document.
#[derive(Debug, Clone)]
pub(crate) struct KeptJob {
    pub(crate) record: JobRecord,
    pub(crate) version: DocumentVersion,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum JobWrite {
    Written,
    /// Somebody else changed it: the present one, if it is still there.
    Changed(Option<Box<KeptJob>>),
}

fn prefix(tenant: Option<&TenantId>) -> String {
    tenant.map_or_else(|| PREFIX.to_owned(), |tenant| format!("{PREFIX}{tenant}/"))
}

fn name_of(record: &JobRecord) -> String {
    let tenant = record.tenant.as_ref().map_or("*", TenantId::as_str);
    format!("{PREFIX}{tenant}/{}", record.id)
}

fn read(document: &Document) -> Option<KeptJob> {
    let record = serde_json::from_str(document.json.as_deref()?);
    let record = record.inspect_err(|error| {
        tracing::error!(document = document.name, %error, "a job cannot be read");
    });
    Some(KeptJob { record: record.ok()?, version: document.version })
}

/// The jobs of a tenant, or all of them, newest first.
pub(crate) async fn jobs(
    store: &(impl Documents + ?Sized),
    tenant: Option<&TenantId>,
) -> StoreResult<Vec<KeptJob>> {
    let documents = store.documents(&prefix(tenant)).await?;
    let mut all: Vec<_> = documents.iter().filter_map(read).collect();
    all.sort_by(|one, other| other.record.id.cmp(&one.record.id));
    Ok(all)
}

pub(crate) async fn job(
    store: &(impl Documents + ?Sized),
    tenant: Option<&TenantId>,
    id: &str,
) -> StoreResult<Option<KeptJob>> {
    Ok(jobs(store, tenant).await?.into_iter().find(|kept| kept.record.id == id))
}

/// Writes a job over the version that the caller knows.
pub(crate) async fn write(
    store: &(impl Documents + ?Sized),
    kept: &mut KeptJob,
) -> StoreResult<JobWrite> {
    let json = serde_json::to_string(&kept.record)
        .map_err(|error| StoreError::io("a job cannot be written", error))?;
    let ttl = kept.record.state.is_ended().then_some(KEPT);
    let name = name_of(&kept.record);
    Ok(match store.put_document(&name, Some(&json), Some(kept.version), ttl).await? {
        PutResult::Written(version) => {
            kept.version = version;
            JobWrite::Written
        }
        PutResult::Conflict(present) => {
            JobWrite::Changed(present.as_ref().and_then(read).map(Box::new))
        }
    })
}

/// Changes a job, however many others change it at the same time. `change` answers false if it must stay as it is.
/// Answers the job as it is then, and whether it was changed; none if there is no such job.
pub(crate) async fn change(
    store: &(impl Documents + ?Sized),
    tenant: Option<&TenantId>,
    id: &str,
    change: impl Fn(&mut JobRecord) -> bool,
) -> StoreResult<Option<(JobRecord, bool)>> {
    for _ in 0..TRIES {
        let Some(mut kept) = job(store, tenant, id).await? else { return Ok(None) };
        if !change(&mut kept.record) {
            return Ok(Some((kept.record, false)));
        }
        if let JobWrite::Written = write(store, &mut kept).await? {
            return Ok(Some((kept.record, true)));
        }
    }
    let what = format!("the job {id} is changed by others all the time");
    Err(StoreError::Io { what, cause: None })
}

/// Deletes these jobs, whatever they are doing.
pub(crate) async fn delete_jobs(
    store: &(impl Documents + ?Sized),
    all: &[KeptJob],
) -> StoreResult<()> {
    for kept in all {
        store.put_document(&name_of(&kept.record), None, None, None).await?;
    }
    Ok(())
}

/// Deletes ended jobs of a tenant beyond those that are kept.
pub(crate) async fn forget_oldest(
    store: &(impl Documents + ?Sized),
    all: &[KeptJob],
) -> StoreResult<()> {
    let ended = all.iter().filter(|kept| kept.record.state.is_ended());
    for kept in ended.skip(ENDED_MAX) {
        store.put_document(&name_of(&kept.record), None, None, None).await?;
    }
    Ok(())
}

pub(crate) fn open_jobs(all: &[KeptJob]) -> usize {
    all.iter().filter(|kept| !kept.record.state.is_ended()).count()
}

/// Whether a server works on it, or will.
pub(crate) fn is_runnable(record: &JobRecord) -> bool {
    matches!(record.state, JobState::Queued | JobState::Running)
}
