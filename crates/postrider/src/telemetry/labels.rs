//! Metric labels with a bounded number of values. Further providers are called `other`.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::{ChannelKind, LaneKey};
use prometheus_client::encoding::{
    EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder,
};

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

/// The providers seen so far, up to the bound.
#[derive(Default)]
pub(super) struct Providers(RwLock<HashSet<Arc<str>>>);

impl Providers {
    pub(super) fn labels(&self, lane: &LaneKey, outcome: Option<&'static str>) -> LaneLabels {
        LaneLabels {
            channel: lane.channel,
            provider: self.bounded(&lane.provider),
            class: lane.class.clone(),
            outcome,
        }
    }

    pub(super) fn bounded(&self, provider: &Arc<str>) -> Arc<str> {
        let found = label(&self.0.read().unwrap_or_else(PoisonError::into_inner), provider);
        found.unwrap_or_else(|| self.add(provider))
    }

    fn add(&self, provider: &Arc<str>) -> Arc<str> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Other threads may have added providers since the read.
        label(&known, provider).unwrap_or_else(|| {
            known.insert(provider.clone());
            provider.clone()
        })
    }
}

/// The provider's label. None for a new provider that there is still room for. No provider is ever removed, so a full
/// table answers for all of them.
fn label(known: &HashSet<Arc<str>>, provider: &Arc<str>) -> Option<Arc<str>> {
    if known.contains(provider) {
        return Some(provider.clone());
    }
    (known.len() >= PROVIDERS_MAX).then(|| OTHER.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::TenantId;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_provider_beyond_the_bound_is_other() {
        let providers = Providers::default();
        let lane = |n: usize| LaneKey {
            tenant: TenantId::new("t"),
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
