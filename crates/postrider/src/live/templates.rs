//! The templates of the server and of its tenants: those of the file, and those made by API, which the
//! store keeps and which are laid over them. A change is compiled before anything is touched, durable
//! before it holds, and holds at once. Renders nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::ports::store::{Store, StoreError, StoreResult};
use postrider_core::{FieldError, TenantId, Timestamp};
use postrider_dispatch::template::{Shelf, Source, Template, Templates};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::config::Config;

const PREFIX: &str = "template/";
/// In the store: every tenant's.
const SERVER: &str = "*";
/// What one tenant, or the server, can have by API.
const TEMPLATES_MAX: usize = 500;
/// All of these together, as JSON: compiled they take some fifteen times as much memory.
const BYTES_MAX: usize = 4 << 20;

/// What was set, by whom and when.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    template: Source,
    by: String,
    at: Timestamp,
}

/// Whose: a tenant's, or the server's (none).
type Owner = Option<TenantId>;

/// One template as it holds now.
#[derive(Debug, Clone)]
pub struct Entry {
    pub source: Source,
    pub template: Arc<Template>,
    /// By whom and when, where it was made by API.
    pub made: Option<(String, Timestamp)>,
    /// Whether it is the server's.
    pub is_shared: bool,
    bytes: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("the template cannot be used")]
    Unusable(Vec<FieldError>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub struct TemplateBook {
    store: Arc<dyn Store>,
    templates: Arc<Templates>,
    known: RwLock<Known>,
    /// One change at a time.
    changing: Mutex<()>,
}

#[derive(Default)]
struct Known {
    file: BTreeMap<String, Entry>,
    set: BTreeMap<(Owner, String), Entry>,
}

impl TemplateBook {
    /// Those that cannot be understood any more are left alone and named in the log.
    pub async fn load(store: Arc<dyn Store>, config: &Config) -> StoreResult<Self> {
        let mut known = Known::default();
        for (setting, text) in store.settings().await? {
            let Some((owner, name)) = named(&setting) else { continue };
            let kept = serde_json::from_str::<Kept>(&text).ok();
            match kept.and_then(|kept| entry(&name, kept, owner.is_none()).ok()) {
                Some(entry) => drop(known.set.insert((owner, name), entry)),
                None => tracing::error!(setting, "a template made by API does not hold any more"),
            }
        }
        let (known, templates) = (RwLock::new(known), Arc::default());
        let book = Self { store, templates, known, changing: Mutex::default() };
        book.adopt(config);
        Ok(book)
    }

    /// Where the gate finds them.
    pub fn templates(&self) -> Arc<Templates> {
        self.templates.clone()
    }

    /// Lets what the file says hold. It was checked with the rest of the configuration.
    pub fn adopt(&self, config: &Config) {
        let compile = |(name, source): (&String, &Source)| {
            let template = Arc::new(Template::compile(name, source).ok()?);
            let source = source.clone();
            let entry = Entry { source, template, made: None, is_shared: true, bytes: 0 };
            Some((name.clone(), entry))
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.file = config.templates.iter().filter_map(compile).collect();
        self.templates.replace(known.shelf());
    }

    /// Makes or changes one; `None` takes back what was made by API. Durable on return. False if there
    /// was nothing to take back.
    pub async fn set(
        &self,
        owner: Option<&TenantId>,
        name: &str,
        made: Option<(Source, String, Timestamp)>,
    ) -> Result<bool, TemplateError> {
        let _one = self.changing.lock().await;
        let key = (owner.cloned(), name.to_owned());
        let kept = made.map(|(template, by, at)| Kept { template, by, at });
        let text = kept.as_ref().and_then(|kept| serde_json::to_string(kept).ok());
        let entry = kept.map(|kept| entry(name, kept, owner.is_none())).transpose();
        let entry = entry.map_err(TemplateError::Unusable)?;
        let room = self.check_room(&key, entry.as_ref());
        if !room.map_err(|error| TemplateError::Unusable(vec![error]))? {
            return Ok(false);
        }
        let setting = format!("{PREFIX}{}/{name}", owner.map_or(SERVER, TenantId::as_str));
        self.store.put_setting(&setting, text.as_deref()).await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match entry {
            Some(entry) => drop(known.set.insert(key, entry)),
            None => drop(known.set.remove(&key)),
        }
        self.templates.replace(known.shelf());
        Ok(true)
    }

    /// What a message of this tenant gets by this name; the server's own for no tenant.
    pub fn find(&self, tenant: Option<&TenantId>, name: &str) -> Option<Entry> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of = |owner: Owner| known.set.get(&(owner, name.to_owned()));
        let own = tenant.and_then(|tenant| of(Some(tenant.clone())));
        own.or_else(|| of(None)).or_else(|| known.file.get(name)).cloned()
    }

    /// Everything that a tenant can name, in order.
    pub fn list(&self, tenant: Option<&TenantId>) -> Vec<Entry> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeMap<&str, &Entry> =
            known.file.iter().map(|(name, entry)| (name.as_str(), entry)).collect();
        all.extend(known.of(None));
        if tenant.is_some() {
            all.extend(known.of(tenant));
        }
        all.into_values().cloned().collect()
    }

    /// Whether there is anything to do; an error if there is no room for it.
    fn check_room(&self, key: &(Owner, String), entry: Option<&Entry>) -> Result<bool, FieldError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entry else { return Ok(known.set.contains_key(key)) };
        let others = known.of(key.0.as_ref()).filter(|(name, _)| *name != key.1);
        let (count, bytes) =
            others.fold((1, entry.bytes), |(n, sum), (_, other)| (n + 1, sum + other.bytes));
        if count > TEMPLATES_MAX || bytes > BYTES_MAX {
            let found = format!("with it {count} templates of {bytes} bytes");
            let allowed =
                format!("at most {TEMPLATES_MAX} made by API, and {BYTES_MAX} bytes in all");
            return Err(FieldError::new("locales", found, allowed));
        }
        Ok(true)
    }
}

impl Known {
    /// Made by API for this owner, by name.
    fn of(&self, owner: Option<&TenantId>) -> impl Iterator<Item = (&str, &Entry)> {
        let owner = owner.cloned();
        let own = self.set.range((owner.clone(), String::new())..);
        own.take_while(move |((of, _), _)| *of == owner)
            .map(|((_, name), entry)| (name.as_str(), entry))
    }

    fn shelf(&self) -> Shelf {
        let mut shelf = Shelf::default();
        self.file.values().for_each(|entry| shelf.put(None, entry.template.clone()));
        for ((owner, _), entry) in &self.set {
            shelf.put(owner.as_ref(), entry.template.clone());
        }
        shelf
    }
}

fn named(setting: &str) -> Option<(Owner, String)> {
    let (owner, name) = setting.strip_prefix(PREFIX)?.split_once('/')?;
    Some(((owner != SERVER).then(|| TenantId::new(owner)), name.to_owned()))
}

fn entry(name: &str, kept: Kept, is_shared: bool) -> Result<Entry, Vec<FieldError>> {
    let template = Arc::new(Template::compile(name, &kept.template)?);
    let made = Some((kept.by, kept.at));
    let bytes = serde_json::to_string(&kept.template.locales).map_or(0, |text| text.len());
    Ok(Entry { source: kept.template, template, made, is_shared, bytes })
}
