//! The templates of the server and of its tenants. Templates that were set by API are kept in the store and
//! win over those of the file. A change is compiled and durable before it takes effect. Renders nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_channels::registry::content_schema;
use postrider_core::ports::store::{DocumentChanges, Store, StoreError, StoreResult};
use postrider_core::{FieldError, TenantId, Timestamp};
use postrider_dispatch::QuotaExcess;
use postrider_dispatch::template::{CurrentTemplates, Template, TemplateSet, TemplateSource};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::config::Config;
use crate::documents::{OwnWrites, overwrite};

const PREFIX: &str = "template/";
/// The owner of a template of the server, in the store.
const SERVER: &str = "*";
/// How many templates an owner may set by API, and their size together as JSON. Compiled, they take about fifteen
/// times as much memory. 0 is no limit.
#[derive(Debug, Clone, Copy)]
pub struct TemplateLimits {
    pub count_max: u64,
    pub bytes_max: u64,
}

/// A template as the store keeps it, with the key and the time of the change.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TemplateRecord {
    template: TemplateSource,
    by: String,
    at: Timestamp,
}

/// A tenant, or the server (none).
type TemplateOwner = Option<TenantId>;

/// One template in force.
#[derive(Debug, Clone)]
pub struct TemplateEntry {
    pub source: TemplateSource,
    pub template: Arc<Template>,
    /// The key and the time, if it was set by API.
    pub set_by: Option<(String, Timestamp)>,
    /// Whether it belongs to the server.
    pub is_shared: bool,
    bytes: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("the template cannot be used")]
    Unusable(Vec<FieldError>),
    #[error("the owner has as many templates as it may")]
    Full(QuotaExcess),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps the templates in the store, and compiled in memory.
pub struct TemplateStore {
    store: Arc<dyn Store>,
    templates: Arc<CurrentTemplates>,
    table: RwLock<TemplateTable>,
    /// One change at a time.
    changing: Mutex<OwnWrites>,
}

#[derive(Default)]
struct TemplateTable {
    file: BTreeMap<String, TemplateEntry>,
    set: BTreeMap<(TemplateOwner, String), TemplateEntry>,
}

impl TemplateStore {
    /// Skips and logs stored templates that cannot be read.
    pub async fn load(store: Arc<dyn Store>, config: &Config) -> StoreResult<Self> {
        let mut table = TemplateTable::default();
        for document in store.documents(PREFIX).await? {
            table.put_stored(&document.name, document.json.as_deref());
        }
        let (table, templates) = (RwLock::new(table), Arc::default());
        let store = Self { store, templates, table, changing: Mutex::default() };
        store.adopt(config);
        Ok(store)
    }

    /// Where the intake finds them.
    pub fn templates(&self) -> Arc<CurrentTemplates> {
        self.templates.clone()
    }

    /// Takes over the templates of the file. They were checked with the rest of the configuration.
    pub fn adopt(&self, config: &Config) {
        let compile = |(name, source): (&String, &TemplateSource)| {
            let template = Arc::new(Template::compile(name, source, &content_schema()).ok()?);
            let source = source.clone();
            let entry = TemplateEntry { source, template, set_by: None, is_shared: true, bytes: 0 };
            Some((name.clone(), entry))
        };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.file = config.templates.iter().filter_map(compile).collect();
        self.templates.replace(table.set());
    }

    /// Sets one template; `None` deletes what was set by API. Durable on return. False if there was nothing
    /// to delete.
    pub async fn set(
        &self,
        owner: Option<&TenantId>,
        name: &str,
        new: Option<(TemplateSource, String, Timestamp)>,
        limits: TemplateLimits,
    ) -> Result<bool, TemplateError> {
        let mut own = self.changing.lock().await;
        let key = (owner.cloned(), name.to_owned());
        let record = new.map(|(template, by, at)| TemplateRecord { template, by, at });
        let text = record.as_ref().and_then(|record| serde_json::to_string(record).ok());
        let entry = record.map(|record| entry(name, record, owner.is_none())).transpose();
        let entry = entry.map_err(TemplateError::Unusable)?;
        if !self.check_room(&key, entry.as_ref(), limits).map_err(TemplateError::Full)? {
            return Ok(false);
        }
        let document = document_name(owner, name);
        let version = overwrite(&*self.store, &document, text.as_deref()).await?;
        own.note(&document, version);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        match entry {
            Some(entry) => drop(table.set.insert(key, entry)),
            None => drop(table.set.remove(&key)),
        }
        self.templates.replace(table.set());
        Ok(true)
    }

    /// Applies what other nodes set. Skips and logs what cannot be used.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut own = self.changing.lock().await;
        let known = || {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let names = table.set.keys();
            names.map(|(owner, name)| document_name(owner.as_ref(), name)).collect()
        };
        let news = own.news(changes, |name| name.starts_with(PREFIX), known);
        if news.is_empty() {
            return;
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for (document, text) in news {
            table.put_stored(&document, text);
        }
        self.templates.replace(table.set());
    }

    /// The template that a message of this tenant gets by this name; without a tenant, the server's.
    pub fn find(&self, tenant: Option<&TenantId>, name: &str) -> Option<TemplateEntry> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let of = |owner: TemplateOwner| table.set.get(&(owner, name.to_owned()));
        let own = tenant.and_then(|tenant| of(Some(tenant.clone())));
        own.or_else(|| of(None)).or_else(|| table.file.get(name)).cloned()
    }

    /// All templates that a tenant can use, by name.
    pub fn list(&self, tenant: Option<&TenantId>) -> Vec<TemplateEntry> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeMap<&str, &TemplateEntry> =
            table.file.iter().map(|(name, entry)| (name.as_str(), entry)).collect();
        all.extend(table.of(None));
        if tenant.is_some() {
            all.extend(table.of(tenant));
        }
        all.into_values().cloned().collect()
    }

    /// How many templates an owner set by API, and their size.
    pub fn set_by(&self, owner: Option<&TenantId>) -> (usize, usize) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.of(owner).fold((0, 0), |(n, sum), (_, entry)| (n + 1, sum + entry.bytes))
    }

    /// Whether the change does anything; an error if there is no room for it.
    fn check_room(
        &self,
        key: &(TemplateOwner, String),
        entry: Option<&TemplateEntry>,
        limits: TemplateLimits,
    ) -> Result<bool, QuotaExcess> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entry else { return Ok(table.set.contains_key(key)) };
        let others = table.of(key.0.as_ref()).filter(|(name, _)| *name != key.1);
        let (count, bytes) =
            others.fold((1, entry.bytes), |(n, sum), (_, other)| (n + 1, sum + other.bytes));
        let remedy = "delete templates that are not needed, or raise the limit";
        for (quota, found, allowed) in [
            ("limits.templates_max", count as u64, limits.count_max),
            ("limits.template_bytes_max", bytes as u64, limits.bytes_max),
        ] {
            if allowed > 0 && found > allowed {
                return Err(QuotaExcess { quota, found, allowed, remedy });
            }
        }
        Ok(true)
    }
}

impl TemplateTable {
    /// Takes over what a document says. Skips and logs a template that cannot be used.
    fn put_stored(&mut self, document: &str, text: Option<&str>) {
        let Some((owner, name)) = parse_name(document) else { return };
        let Some(text) = text else { return drop(self.set.remove(&(owner, name))) };
        let record = serde_json::from_str::<TemplateRecord>(text).ok();
        match record.and_then(|record| entry(&name, record, owner.is_none()).ok()) {
            Some(entry) => drop(self.set.insert((owner, name), entry)),
            None => tracing::error!(
                setting = document,
                "a template that was set by API cannot be used any more"
            ),
        }
    }

    /// Set by API for this owner, by name.
    fn of(&self, owner: Option<&TenantId>) -> impl Iterator<Item = (&str, &TemplateEntry)> {
        let owner = owner.cloned();
        let own = self.set.range((owner.clone(), String::new())..);
        own.take_while(move |((of, _), _)| *of == owner)
            .map(|((_, name), entry)| (name.as_str(), entry))
    }

    fn set(&self) -> TemplateSet {
        let mut set = TemplateSet::default();
        self.file.values().for_each(|entry| set.put(None, entry.template.clone()));
        for ((owner, _), entry) in &self.set {
            set.put(owner.as_ref(), entry.template.clone());
        }
        set
    }
}

fn document_name(owner: Option<&TenantId>, name: &str) -> String {
    format!("{PREFIX}{}/{name}", owner.map_or(SERVER, TenantId::as_str))
}

fn parse_name(document: &str) -> Option<(TemplateOwner, String)> {
    let (owner, name) = document.strip_prefix(PREFIX)?.split_once('/')?;
    Some(((owner != SERVER).then(|| TenantId::new(owner)), name.to_owned()))
}

fn entry(
    name: &str,
    record: TemplateRecord,
    is_shared: bool,
) -> Result<TemplateEntry, Vec<FieldError>> {
    let template = Arc::new(Template::compile(name, &record.template, &content_schema())?);
    let set_by = Some((record.by, record.at));
    let bytes = serde_json::to_string(&record.template.locales).map_or(0, |text| text.len());
    Ok(TemplateEntry { source: record.template, template, set_by, is_shared, bytes })
}
