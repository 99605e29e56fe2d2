//! The templates in force: one snapshot, replaced as a whole while the server runs. Checks nothing: templates
//! arrive compiled.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::TenantId;

use super::Template;

type TemplatesByName = HashMap<String, Arc<Template>>;

/// Templates of the server and of its tenants.
#[derive(Debug, Clone, Default)]
pub struct TemplateSet {
    server: TemplatesByName,
    tenants: HashMap<TenantId, Arc<TemplatesByName>>,
}

impl TemplateSet {
    /// Adds or replaces a template of a tenant or of the server.
    pub fn put(&mut self, owner: Option<&TenantId>, template: Arc<Template>) {
        let name = template.name().to_owned();
        self.of(owner).insert(name, template);
    }

    pub fn remove(&mut self, owner: Option<&TenantId>, name: &str) {
        self.of(owner).remove(name);
    }

    /// A tenant's own is found before the server's.
    pub fn find(&self, tenant: &TenantId, name: &str) -> Option<&Arc<Template>> {
        let own = self.tenants.get(tenant).and_then(|own| own.get(name));
        own.or_else(|| self.server.get(name))
    }

    /// What a tenant can name, in order.
    pub fn names(&self, tenant: &TenantId) -> Vec<&str> {
        let own = self.tenants.get(tenant).into_iter().flat_map(|own| own.keys());
        let mut names: Vec<_> = own.chain(self.server.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn of(&mut self, owner: Option<&TenantId>) -> &mut TemplatesByName {
        match owner {
            None => &mut self.server,
            Some(tenant) => Arc::make_mut(self.tenants.entry(tenant.clone()).or_default()),
        }
    }
}

/// Where the snapshot is kept.
#[derive(Debug, Default)]
pub struct CurrentTemplates(RwLock<Arc<TemplateSet>>);

impl CurrentTemplates {
    pub fn now(&self) -> Arc<TemplateSet> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, templates: TemplateSet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(templates);
    }
}
