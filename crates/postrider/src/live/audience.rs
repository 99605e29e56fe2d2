//! The rules of tenants for their audience: zone, quiet hours, categories. Kept as documents, one for each tenant, and
//! followed by every node. Knows no single person.

use std::sync::Arc;

use postrider_core::TenantId;
use postrider_core::policy::audience::AudienceRules;
use postrider_core::ports::store::{
    Document, DocumentChanges, DocumentVersion, EntryKind, PutResult, Store, StoreError,
    StoreResult,
};
use postrider_dispatch::Lanes;
use postrider_dispatch::audience::AudienceBook;
use tokio::sync::Mutex;

use crate::documents::OwnWrites;

const PREFIX: &str = "audience/";
/// Others may change the same document at the same time.
const TRIES: usize = 16;

fn document_name(tenant: &TenantId) -> String {
    format!("{PREFIX}{tenant}")
}

pub struct AudienceSettings {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    /// Locked during a change: one change at a time.
    changing: Mutex<OwnWrites>,
}

impl AudienceSettings {
    /// Puts the stored rules in force.
    pub async fn open(store: Arc<dyn Store>, lanes: Arc<Lanes>) -> StoreResult<Self> {
        let settings = Self { store, lanes, changing: Mutex::default() };
        settings.book().use_store(settings.store.clone());
        for Document { name, json, .. } in settings.store.documents(PREFIX).await? {
            settings.adopt(&name, json.as_deref());
        }
        Ok(settings)
    }

    pub fn book(&self) -> &AudienceBook {
        self.lanes.policies().audience()
    }

    /// The rules of a tenant; the default ones if it has none.
    pub fn rules(&self, tenant: &TenantId) -> Arc<AudienceRules> {
        self.book().rules(tenant).unwrap_or_default()
    }

    /// Changes the rules of a tenant. Durable and in force here on return. An error of `change` leaves them as they
    /// are.
    pub async fn change<T, E: From<StoreError>>(
        &self,
        tenant: &TenantId,
        mut change: impl FnMut(&mut AudienceRules) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut own = self.changing.lock().await;
        let name = document_name(tenant);
        for _ in 0..TRIES {
            let (version, found) = self.stored(&name).await?;
            let mut rules = found.clone();
            let answer = change(&mut rules)?;
            if rules == found {
                return Ok(answer);
            }
            let json = serde_json::to_string(&rules)
                .map_err(|error| StoreError::io("the rules cannot be written", error))?;
            let put = self.store.put_document(&name, Some(&json), Some(version), None).await?;
            if let PutResult::Written(version) = put {
                own.note(&name, version);
                self.book().adopt(tenant, Some(rules));
                return Ok(answer);
            }
        }
        let what = "others change the same rules all the time".to_owned();
        Err(StoreError::Io { what, cause: None }.into())
    }

    /// From now on, entries of this kind are looked up for the tenant. To be called before the first one is written.
    pub async fn note_kind(&self, tenant: &TenantId, kind: EntryKind) -> StoreResult<()> {
        let note = |rules: &mut AudienceRules| match kind {
            EntryKind::Recipient | EntryKind::Alias => rules.has_recipients = true,
            EntryKind::Suppression => rules.has_suppressions = true,
            EntryKind::AddressFacts => rules.has_address_facts = true,
        };
        let present = self.rules(tenant);
        let mut noted = (*present).clone();
        note(&mut noted);
        if noted == *present {
            return Ok(());
        }
        self.change(tenant, |rules| {
            note(rules);
            Ok(())
        })
        .await
    }

    async fn stored(&self, name: &str) -> StoreResult<(DocumentVersion, AudienceRules)> {
        let found = self.store.documents(name).await?;
        let found = found.into_iter().find(|document| document.name == name);
        let Some(document) = found else {
            return Ok((DocumentVersion::NONE, AudienceRules::default()));
        };
        let rules = serde_json::from_str(document.json.as_deref().unwrap_or("{}"));
        let rules = rules.map_err(|error| StoreError::Corrupt {
            what: format!("the rules of an audience: {error}"),
            cause: None,
        })?;
        Ok((document.version, rules))
    }

    /// Applies what other nodes set.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut own = self.changing.lock().await;
        let known = || self.book().tenants().iter().map(document_name).collect();
        for (name, text) in own.news(changes, |name| name.starts_with(PREFIX), known) {
            self.adopt(&name, text);
        }
    }

    fn adopt(&self, name: &str, text: Option<&str>) {
        let Some(tenant) = name.strip_prefix(PREFIX).map(TenantId::new) else { return };
        match text.map(serde_json::from_str).transpose() {
            Ok(rules) => self.book().adopt(&tenant, rules),
            // The rules in force stay: without any, everybody would be written to.
            Err(error) => {
                tracing::error!(%tenant, %error, "the rules of an audience cannot be used")
            }
        }
    }
}
