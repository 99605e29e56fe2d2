//! Metrics about the accounts at providers and their credentials. One label per configured account or
//! credential.

use std::sync::atomic::AtomicU64;

use postrider_channels::accounts::AccountView;
use postrider_channels::accounts::health::CredentialView;
use postrider_core::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::labels::{ChannelLabel, CredentialLabels, ProviderLabels};
use super::registrar::Registrar;

pub(crate) struct AccountMetrics {
    ready: Family<ProviderLabels, Gauge>,
    calls: Family<ProviderLabels, Counter>,
    failovers: Family<ProviderLabels, Counter>,
    sent: Family<ProviderLabels, Counter>,
    cost: Family<ProviderLabels, Counter<f64, AtomicU64>>,
    expiry_seconds: Family<CredentialLabels, Gauge>,
    usable: Family<CredentialLabels, Gauge>,
}

impl AccountMetrics {
    pub(super) fn new(r: &mut Registrar) -> Self {
        Self {
            ready: r.add("account_ready", "1 if nothing holds the account"),
            calls: r.add("account_calls", "Attempts through the account"),
            failovers: r.add("account_failovers", "Attempts that another account took over"),
            sent: r.add("account_sent", "Messages that a provider accepted through the account"),
            cost: r.add(
                "account_cost",
                "What these messages cost, by the cost that the account's settings state",
            ),
            expiry_seconds: r.add(
                "credential_expiry_seconds",
                "Seconds until the account's credential expires; negative if it expired",
            ),
            usable: r.add(
                "credential_usable",
                "1 if the account's credential can be read and its provider issues a token for it",
            ),
        }
    }

    pub(super) fn update(&self, accounts: &[AccountView]) {
        for account in accounts {
            let labels = ProviderLabels {
                channel: ChannelLabel(account.channel),
                provider: account.name.clone(),
            };
            self.ready.get_or_create(&labels).set(i64::from(account.held.is_none()));
            for (family, now) in [
                (&self.calls, account.calls),
                (&self.failovers, account.failovers),
                (&self.sent, account.sent),
            ] {
                let counter = family.get_or_create(&labels);
                counter.inc_by(now.saturating_sub(counter.get()));
            }
            let cost = self.cost.get_or_create(&labels);
            cost.inc_by((account.sent as f64 * account.cost - cost.get()).max(0.0));
        }
    }

    /// Of several credentials of one kind, the worst counts.
    pub(crate) fn update_credentials(&self, credentials: &[CredentialView], now: Timestamp) {
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
    use postrider_channels::accounts::health::CredentialStatus;

    #[test]
    fn a_scrape_says_which_account_is_held_and_counts_no_call_twice() {
        let mut registrar = Registrar::default();
        let metrics = AccountMetrics::new(&mut registrar);
        let view = AccountView {
            name: "firebase".into(),
            channel: postrider_channels::fcm::KIND,
            tenant: "*".into(),
            priority: 0,
            cost: 0.5,
            held: Some(("credential", Some(Timestamp(0)))),
            calls: 3,
            failovers: 1,
            sent: 2,
        };
        metrics.update(std::slice::from_ref(&view));
        metrics.update(&[AccountView { calls: 5, sent: 4, ..view }]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registrar.registry).unwrap();
        for line in [
            r#"postrider_account_ready{channel="fcm",provider="firebase"} 0"#,
            r#"postrider_account_calls_total{channel="fcm",provider="firebase"} 5"#,
            r#"postrider_account_failovers_total{channel="fcm",provider="firebase"} 1"#,
            r#"postrider_account_sent_total{channel="fcm",provider="firebase"} 4"#,
            r#"postrider_account_cost_total{channel="fcm",provider="firebase"} 2.0"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_scrape_says_how_long_credentials_are_good_and_the_worst_of_a_kind_counts() {
        let mut registrar = Registrar::default();
        let metrics = AccountMetrics::new(&mut registrar);
        let view = |account: &str, credential| CredentialView {
            account: account.into(),
            channel: postrider_channels::email::KIND,
            credential,
        };
        let until = |secs| Some(Timestamp::from_secs(secs));
        let certificate =
            CredentialStatus { kind: "certificate", expires_at: until(90), ..Default::default() };
        let key = CredentialStatus { kind: "dkim_key", ..Default::default() };
        let missing = CredentialStatus { problem: Some("not there".into()), ..key.clone() };
        let gone = view("old", CredentialStatus { kind: "password", ..Default::default() });
        metrics.update_credentials(&[gone], Timestamp::from_secs(0));
        let all = [view("apple", certificate), view("relay", missing), view("relay", key)];
        metrics.update_credentials(&all, Timestamp::from_secs(100));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registrar.registry).unwrap();
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
