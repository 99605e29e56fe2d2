//! Notes that operators pin on every page until a time: what others on call, or a tenant, should know. Each is a
//! document of the store, and every node knows all of them, so a page reads none from the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::ports::store::{
    DocumentChanges, DocumentVersion, PutResult, Store, StoreResult,
};
use postrider_core::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::documents::{OwnWrites, overwrite};

const PREFIX: &str = "note/";
/// Notes at once: of the operators, and of each tenant that pins its own.
const MAX: usize = 50;
const OF_TENANT_MAX: usize = 5;

/// Who sees a note besides the operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteAudience {
    Operators,
    Everybody,
    Tenant(TenantId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteRecord {
    /// `note_…`
    pub id: String,
    pub text: String,
    /// The id of a key.
    pub by: String,
    pub at: Timestamp,
    pub until: Timestamp,
    pub audience: NoteAudience,
    /// The tenant whose key pinned it, if that key sees one tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TenantId>,
}

impl NoteRecord {
    /// Whether a person sees it: a tenant, or an operator of all tenants.
    pub fn is_for(&self, tenant: Option<&TenantId>) -> bool {
        match (tenant, &self.audience) {
            (None, _) | (Some(_), NoteAudience::Everybody) => true,
            (Some(_), NoteAudience::Operators) => false,
            (Some(own), NoteAudience::Tenant(named)) => own == named,
        }
    }

    /// Whether a person may take it away.
    pub fn may_remove(&self, tenant: Option<&TenantId>) -> bool {
        tenant.is_none_or(|own| self.owner.as_ref() == Some(own))
    }
}

/// All notes, the newest first.
pub struct NoteBoard {
    store: Arc<dyn Store>,
    notes: RwLock<BTreeMap<String, NoteRecord>>,
    /// Locked during a change: one at a time.
    own: Mutex<OwnWrites>,
}

#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    #[error("{0} notes are pinned; take one away (`postrider notes remove`)")]
    Full(usize),
    #[error(transparent)]
    Store(#[from] postrider_core::ports::store::StoreError),
}

impl NoteBoard {
    pub async fn open(store: Arc<dyn Store>) -> StoreResult<Self> {
        let board = Self { store, notes: RwLock::default(), own: Mutex::default() };
        for document in board.store.documents(PREFIX).await? {
            board.apply(&document.name, document.json.as_deref());
        }
        Ok(board)
    }

    /// Applies what other nodes pinned and took away.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut own = self.own.lock().await;
        let known = || self.read().keys().map(|id| format!("{PREFIX}{id}")).collect();
        for (name, text) in own.news(changes, |name| name.starts_with(PREFIX), known) {
            self.apply(&name, text);
        }
        self.forget_ended(self.store.clock().now());
    }

    /// The store drops those that are over by itself.
    fn forget_ended(&self, now: Timestamp) {
        self.write().retain(|_, note| note.until > now);
    }

    /// Those that this person sees and that are not over, the newest first.
    pub fn list(&self, tenant: Option<&TenantId>, now: Timestamp) -> Vec<NoteRecord> {
        let notes = self.read();
        let seen = notes.values().filter(|note| note.until > now && note.is_for(tenant));
        let mut seen: Vec<_> = seen.cloned().collect();
        seen.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
        seen
    }

    /// Durable on return.
    pub async fn pin(&self, note: NoteRecord) -> Result<(), NoteError> {
        let mut own = self.own.lock().await;
        let now = note.at;
        let is_alike = |other: &&NoteRecord| other.owner == note.owner && other.until > now;
        let found = self.read().values().filter(is_alike).count();
        let allowed = if note.owner.is_some() { OF_TENANT_MAX } else { MAX };
        if found >= allowed {
            return Err(NoteError::Full(found));
        }
        let name = format!("{PREFIX}{}", note.id);
        let text = serde_json::to_string(&note).ok();
        let (absent, kept) = (Some(DocumentVersion::NONE), Some(note.until.since(now)));
        let put = self.store.put_document(&name, text.as_deref(), absent, kept).await?;
        if let PutResult::Written(version) = put {
            own.note(&name, version);
        }
        self.write().insert(note.id.clone(), note);
        self.forget_ended(now);
        Ok(())
    }

    /// The note that was taken away; `None` if there is none that this person may take away.
    pub async fn remove(
        &self,
        id: &str,
        tenant: Option<&TenantId>,
    ) -> StoreResult<Option<NoteRecord>> {
        let mut own = self.own.lock().await;
        let found = self.read().get(id).cloned();
        let Some(note) = found.filter(|note| note.may_remove(tenant)) else { return Ok(None) };
        let name = format!("{PREFIX}{id}");
        let version = overwrite(&*self.store, &name, None).await?;
        own.note(&name, version);
        self.write().remove(id);
        Ok(Some(note))
    }

    fn apply(&self, name: &str, text: Option<&str>) {
        let id = name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        match text.map(serde_json::from_str::<NoteRecord>) {
            Some(Ok(note)) => drop(self.write().insert(id, note)),
            Some(Err(error)) => tracing::error!(document = name, %error, "a note cannot be read"),
            None => drop(self.write().remove(&id)),
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, NoteRecord>> {
        self.notes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, NoteRecord>> {
        self.notes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use postrider_store::{ManualClock, MemoryStore};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

    fn note(id: &str, audience: NoteAudience, owner: Option<&str>) -> NoteRecord {
        let (text, by) = ("their maintenance".to_owned(), "key_1".to_owned());
        let (at, until) = (NOW, NOW + std::time::Duration::from_secs(60));
        NoteRecord {
            id: id.to_owned(),
            text,
            by,
            at,
            until,
            audience,
            owner: owner.map(TenantId::new),
        }
    }

    #[tokio::test]
    async fn a_tenant_sees_what_is_meant_for_it_and_removes_only_its_own() {
        let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::at(NOW))));
        let board = NoteBoard::open(store.clone()).await.unwrap();
        let acme = TenantId::new("acme");
        board.pin(note("a", NoteAudience::Operators, None)).await.unwrap();
        board.pin(note("b", NoteAudience::Everybody, None)).await.unwrap();
        board.pin(note("c", NoteAudience::Tenant(acme.clone()), None)).await.unwrap();
        board.pin(note("d", NoteAudience::Tenant(acme.clone()), Some("acme"))).await.unwrap();
        let ids = |tenant: Option<&TenantId>, now| {
            let seen = board.list(tenant, now);
            seen.into_iter().map(|note| note.id).collect::<String>()
        };
        assert_eq!(ids(None, NOW), "dcba");
        assert_eq!(ids(Some(&acme), NOW), "dcb");
        assert_eq!(ids(Some(&TenantId::new("globex")), NOW), "b");
        assert_eq!(ids(None, NOW + std::time::Duration::from_secs(60)), "", "they are over");
        assert!(board.remove("c", Some(&acme)).await.unwrap().is_none());
        assert!(board.remove("d", Some(&acme)).await.unwrap().is_some());
        assert!(board.remove("a", None).await.unwrap().is_some());
        let again = NoteBoard::open(store).await.unwrap();
        assert_eq!(again.list(None, NOW), board.list(None, NOW));
        for n in 0..OF_TENANT_MAX {
            let own = note(&n.to_string(), NoteAudience::Tenant(acme.clone()), Some("acme"));
            board.pin(own).await.unwrap();
        }
        let more = note("e", NoteAudience::Tenant(acme), Some("acme"));
        assert!(matches!(board.pin(more).await, Err(NoteError::Full(_))));
        let (at, until) = (NOW + 2 * MINUTE, NOW + 3 * MINUTE);
        let later = NoteRecord { at, until, ..note("f", NoteAudience::Operators, None) };
        board.pin(later).await.unwrap();
        assert_eq!(board.read().len(), 1, "those that are over are forgotten");
    }
}
