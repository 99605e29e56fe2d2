//! Reads and changes the entries of recipients. Two callers at once do not lose each other's change.

use std::sync::Arc;

use postrider_core::TenantId;
use postrider_core::model::recipient::RecipientProfile;
use postrider_core::ports::store::{
    EntryKey, EntryKind, EntryResult, EntryVersion, EntryWrite, StoreError, StoredEntry,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bodies::check_id;
use crate::api::SharedState;
use crate::api::problem::{ApiResult, Problem};

/// Others may change the same entry at the same time.
const TRIES: usize = 16;

/// A recipient by its own id.
pub(super) struct FoundProfile {
    pub(super) id: Arc<str>,
    pub(super) version: EntryVersion,
    pub(super) profile: RecipientProfile,
}

pub(crate) async fn entry(app: &SharedState, key: EntryKey) -> ApiResult<Option<StoredEntry>> {
    Ok(app.store.entries(vec![key]).await?.pop().flatten())
}

pub(crate) fn read<T: DeserializeOwned>(entry: &StoredEntry) -> ApiResult<T> {
    let damaged = |error: serde_json::Error| {
        let what = format!("an entry about a person: {error}");
        Problem::from(StoreError::Corrupt { what, cause: None })
    };
    serde_json::from_str(&entry.json).map_err(damaged)
}

pub(crate) fn text(value: &impl Serialize) -> ApiResult<Arc<str>> {
    let text = serde_json::to_string(value);
    Ok(text.map_err(|error| StoreError::io("an entry cannot be written", error))?.into())
}

/// The id that an id stands for: itself, or that of the recipient whose alias it is.
pub(super) async fn canonical(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
) -> ApiResult<Arc<str>> {
    check_id("id", id)?;
    Ok(app.audience.book().canonical(tenant, id).await?)
}

/// The recipient of an id or alias.
pub(super) async fn find(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
) -> ApiResult<Option<FoundProfile>> {
    let id = canonical(app, tenant, id).await?;
    let found = entry(app, EntryKey::new(tenant, EntryKind::Recipient, &id)).await?;
    let Some(found) = found else { return Ok(None) };
    Ok(Some(FoundProfile { id, version: found.version, profile: read(&found)? }))
}

pub(super) async fn must_find(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
) -> ApiResult<FoundProfile> {
    let found = find(app, tenant, id).await?;
    found.ok_or_else(|| Problem::not_found("recipient", crate::api::parameters::shortened(id)))
}

/// Changes a recipient, or makes one where `makes` says so. Answers it as it is then, and whether it is new.
pub(super) async fn change(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
    makes: bool,
    mut change: impl FnMut(&mut RecipientProfile) -> ApiResult<()>,
) -> ApiResult<(Arc<str>, RecipientProfile, bool)> {
    for _ in 0..TRIES {
        let now = app.clock.now();
        let found = match find(app, tenant, id).await? {
            Some(found) => found,
            None if makes => {
                check_room(app, tenant, 1)?;
                let profile = RecipientProfile { created_at: now, ..RecipientProfile::default() };
                FoundProfile { id: id.into(), version: EntryVersion::NONE, profile }
            }
            None => {
                let shown = crate::api::parameters::shortened(id);
                return Err(Problem::not_found("recipient", shown));
            }
        };
        let FoundProfile { id, version, mut profile } = found;
        change(&mut profile)?;
        profile.updated_at = now;
        let is_new = version == EntryVersion::NONE;
        if is_new {
            app.audience.note_kind(tenant, EntryKind::Recipient).await?;
        }
        let key = EntryKey::new(tenant, EntryKind::Recipient, &id);
        if put(app, key, &profile, version).await? {
            if is_new {
                app.quotas.note_entries(tenant, 1);
            }
            return Ok((id, profile, is_new));
        }
    }
    Err(contended())
}

pub(crate) fn contended() -> Problem {
    let detail = "others change the same entry all the time; try again";
    Problem {
        retry_after_s: Some(1),
        ..Problem::new(503, "contended", "Too many changes at once", detail)
    }
}

/// False if the entry has another version meanwhile.
pub(crate) async fn put(
    app: &SharedState,
    key: EntryKey,
    value: &impl Serialize,
    expected: EntryVersion,
) -> ApiResult<bool> {
    let write = EntryWrite { key, json: Some(text(value)?), expected: Some(expected) };
    let results = app.store.write_entries(vec![write]).await?;
    Ok(matches!(results[..], [EntryResult::Written(_)]))
}

pub(crate) async fn delete(app: &SharedState, keys: Vec<EntryKey>) -> ApiResult<()> {
    let delete = |key| EntryWrite { key, json: None, expected: None };
    app.store.write_entries(keys.into_iter().map(delete).collect()).await?;
    Ok(())
}

/// An error if the tenant may not keep so many more entries.
pub(crate) fn check_room(app: &SharedState, tenant: &TenantId, more: u64) -> ApiResult<()> {
    Ok(app.quotas.check_entries(&app.config(), tenant, more)?)
}
