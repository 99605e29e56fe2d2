//! Metric labels with a bounded number of values. Further providers are called `other`.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::{ChannelKind, LaneKey, TenantId};
use prometheus_client::encoding::{
    EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder,
};

use crate::rollups::has_room;

/// Distinct providers that get a label of their own.
const PROVIDERS_MAX: usize = 100;
const OTHER: &str = "other";

/// The labels of a lane's metrics; the tenant is left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneLabels {
    pub(super) channel: ChannelKind,
    pub(super) provider: Arc<str>,
    pub(super) class: Arc<str>,
    pub(super) outcome: Option<&'static str>,
}

impl EncodeLabelSet for LaneLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        ("channel", self.channel.name()).encode(encoder.encode_label())?;
        ("provider", &*self.provider).encode(encoder.encode_label())?;
        ("class", &*self.class).encode(encoder.encode_label())?;
        match self.outcome {
            Some(outcome) => ("outcome", outcome).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

/// A channel as the value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ChannelLabel(pub(super) ChannelKind);

impl EncodeLabelValue for ChannelLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.name().encode(encoder)
    }
}

/// The labels of a provider or an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProviderLabels {
    pub(super) channel: ChannelLabel,
    pub(super) provider: Arc<str>,
}

/// The labels of a provider, and one from a closed set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ProviderOutcomeLabels {
    pub(super) channel: ChannelKind,
    pub(super) provider: Arc<str>,
    pub(super) outcome: &'static str,
}

impl EncodeLabelSet for ProviderOutcomeLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        ("channel", self.channel.name()).encode(encoder.encode_label())?;
        ("provider", &*self.provider).encode(encoder.encode_label())?;
        ("outcome", self.outcome).encode(encoder.encode_label())
    }
}

/// One label from a closed set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabel {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StrikeLabels {
    pub(super) channel: ChannelLabel,
    pub(super) kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CredentialLabels {
    pub(super) account: Arc<str>,
    pub(super) kind: &'static str,
}

/// The providers seen so far, up to the bound. No provider is ever removed.
#[derive(Default)]
pub(super) struct Providers(RwLock<KnownProviders>);

#[derive(Default)]
struct KnownProviders {
    names: HashSet<Arc<str>>,
    /// How many each tenant was the first to use.
    of_tenants: HashMap<TenantId, usize>,
}

impl Providers {
    pub(super) fn labels(&self, lane: &LaneKey, outcome: Option<&'static str>) -> LaneLabels {
        LaneLabels {
            channel: lane.channel,
            provider: self.of_tenant(&lane.provider, &lane.tenant),
            class: lane.class.clone(),
            outcome,
        }
    }

    /// The label of a provider, whoever uses it.
    pub(super) fn bounded(&self, provider: &Arc<str>) -> Arc<str> {
        self.of_tenant(provider, &TenantId::new(""))
    }

    fn of_tenant(&self, provider: &Arc<str>, tenant: &TenantId) -> Arc<str> {
        let found = {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            known.label(provider, tenant)
        };
        found.unwrap_or_else(|| self.add(provider, tenant))
    }

    fn add(&self, provider: &Arc<str>, tenant: &TenantId) -> Arc<str> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Other threads may have added providers since the read.
        known.label(provider, tenant).unwrap_or_else(|| {
            known.names.insert(provider.clone());
            *known.of_tenants.entry(tenant.clone()).or_default() += 1;
            provider.clone()
        })
    }
}

impl KnownProviders {
    /// The provider's label. None for a new provider that there is still room for.
    fn label(&self, provider: &Arc<str>, tenant: &TenantId) -> Option<Arc<str>> {
        if self.names.contains(provider) {
            return Some(provider.clone());
        }
        let own = self.of_tenants.get(tenant).copied().unwrap_or(0);
        (!has_room(PROVIDERS_MAX, self.names.len(), own)).then(|| OTHER.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_provider_beyond_the_bound_is_other() {
        let providers = Providers::default();
        // Nobody has more than a quarter.
        let lane = |n: usize| LaneKey {
            tenant: TenantId::new(&format!("t{}", n / 20)),
            channel: postrider_channels::webhook::KIND,
            provider: format!("https://h{n}").into(),
            class: "otp".into(),
        };
        for n in 0..PROVIDERS_MAX {
            assert_eq!(&*providers.labels(&lane(n), None).provider, &*format!("https://h{n}"));
        }
        assert_eq!(&*providers.labels(&lane(PROVIDERS_MAX), None).provider, OTHER);
        assert_eq!(&*providers.labels(&lane(3), None).provider, "https://h3");
    }

    #[test]
    fn a_tenant_with_endless_hosts_does_not_take_the_labels_of_others() {
        let providers = Providers::default();
        let lane = |tenant: &str, n: usize| LaneKey {
            tenant: TenantId::new(tenant),
            channel: postrider_channels::webhook::KIND,
            provider: format!("https://{tenant}{n}").into(),
            class: "otp".into(),
        };
        for n in 0..1_000 {
            providers.labels(&lane("greedy", n), None);
        }
        assert_eq!(&*providers.labels(&lane("greedy", 999), None).provider, OTHER);
        for n in 0..20 {
            let label = providers.labels(&lane("honest", n), None).provider;
            assert_eq!(&*label, &*format!("https://honest{n}"));
        }
    }

    #[test]
    fn a_provider_beyond_the_bound_is_answered_while_others_read() {
        let providers = Arc::new(Providers::default());
        for n in 0..PROVIDERS_MAX {
            providers.bounded(&format!("https://h{n}").into());
        }
        let _reader = providers.0.read().unwrap();
        let (answer, answered) = mpsc::channel();
        let shared = providers.clone();
        std::thread::spawn(move || answer.send(shared.bounded(&"https://new".into())));
        let label = answered.recv_timeout(Duration::from_secs(10));
        assert_eq!(label.as_deref(), Ok(OTHER), "it waits for the write lock");
    }
}
