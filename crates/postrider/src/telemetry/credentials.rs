//! Metrics about the credentials of accounts: when they expire, and whether they can be used. One label per
//! configured credential.

use std::fmt;
use std::sync::Arc;

use postrider_channels::accounts::health::CredentialView;
use postrider_core::Timestamp;
use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CredentialLabels {
    account: Arc<str>,
    kind: &'static str,
}

impl EncodeLabelSet for CredentialLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        ("account", &*self.account).encode(encoder.encode_label())?;
        ("kind", self.kind).encode(encoder.encode_label())
    }
}

#[derive(Default)]
pub(super) struct CredentialMetrics {
    expiry_seconds: Family<CredentialLabels, Gauge>,
    usable: Family<CredentialLabels, Gauge>,
}

impl CredentialMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "credential_expiry_seconds",
            "Seconds until the account's credential expires; negative if it expired",
            self.expiry_seconds.clone(),
        );
        registry.register(
            "credential_usable",
            "1 if the account's credential can be read and its provider issues a token for it",
            self.usable.clone(),
        );
    }

    /// Of several credentials of one kind, the worst counts.
    pub(super) fn update(&self, credentials: &[CredentialView], now: Timestamp) {
        self.expiry_seconds.clear();
        self.usable.clear();
        let worst =
            |family: &Family<CredentialLabels, Gauge>, labels: &CredentialLabels, value: i64| {
                if let Some(known) = family.get(labels) {
                    known.set(known.get().min(value));
                    return;
                }
                family.get_or_create(labels).set(value);
            };
        for view in credentials {
            let found = &view.credential;
            let labels = CredentialLabels { account: view.account.clone(), kind: found.kind };
            worst(&self.usable, &labels, i64::from(found.problem.is_none()));
            if let Some(end) = found.expires_at {
                worst(&self.expiry_seconds, &labels, end.as_secs() - now.as_secs());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_channels::accounts::health::Credential;

    #[test]
    fn a_scrape_says_how_long_credentials_are_good_and_the_worst_of_a_kind_counts() {
        let metrics = CredentialMetrics::default();
        let mut registry = Registry::with_prefix("postrider");
        metrics.register(&mut registry);
        let view = |account: &str, credential| CredentialView {
            account: account.into(),
            channel: postrider_channels::email::KIND,
            credential,
        };
        let until = |secs| Some(Timestamp::from_secs(secs));
        let certificate =
            Credential { kind: "certificate", expires_at: until(90), ..Default::default() };
        let key = Credential { kind: "dkim_key", ..Default::default() };
        let missing = Credential { problem: Some("not there".into()), ..key.clone() };
        let gone = view("old", Credential { kind: "password", ..Default::default() });
        metrics.update(&[gone], Timestamp::from_secs(0));
        let all = [view("apple", certificate), view("relay", missing), view("relay", key)];
        metrics.update(&all, Timestamp::from_secs(100));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"postrider_credential_expiry_seconds{account="apple",kind="certificate"} -10"#,
            r#"postrider_credential_usable{account="apple",kind="certificate"} 1"#,
            r#"postrider_credential_usable{account="relay",kind="dkim_key"} 0"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("old"), "a credential that was removed leaves the scrape: {text}");
    }
}
