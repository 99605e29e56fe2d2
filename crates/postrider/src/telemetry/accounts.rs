//! Metrics about the accounts at providers. One label per configured account.

use postrider_channels::accounts::AccountView;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::ProviderLabels;

#[derive(Default)]
pub(super) struct AccountMetrics {
    ready: Family<ProviderLabels, Gauge>,
    calls: Family<ProviderLabels, Counter>,
    failovers: Family<ProviderLabels, Counter>,
}

impl AccountMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("account_ready", "1 if nothing holds the account", self.ready.clone());
        registry.register("account_calls", "Attempts through the account", self.calls.clone());
        registry.register(
            "account_failovers",
            "Attempts that another account took over",
            self.failovers.clone(),
        );
    }

    pub(super) fn update(&self, accounts: &[AccountView]) {
        for account in accounts {
            let labels =
                ProviderLabels { channel: account.channel, provider: account.name.clone() };
            self.ready.get_or_create(&labels).set(i64::from(account.held.is_none()));
            for (family, now) in
                [(&self.calls, account.calls), (&self.failovers, account.failovers)]
            {
                let counter = family.get_or_create(&labels);
                counter.inc_by(now.saturating_sub(counter.get()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::Timestamp;

    #[test]
    fn a_scrape_says_which_account_is_held_and_counts_no_call_twice() {
        let metrics = AccountMetrics::default();
        let mut registry = Registry::with_prefix("postrider");
        metrics.register(&mut registry);
        let view = AccountView {
            name: "firebase".into(),
            channel: postrider_channels::fcm::KIND,
            tenant: "*".into(),
            priority: 0,
            cost: 0.0,
            held: Some(("credential", Timestamp(0))),
            calls: 3,
            failovers: 1,
        };
        metrics.update(std::slice::from_ref(&view));
        metrics.update(&[AccountView { calls: 5, ..view }]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"postrider_account_ready{channel="fcm",provider="firebase"} 0"#,
            r#"postrider_account_calls_total{channel="fcm",provider="firebase"} 5"#,
            r#"postrider_account_failovers_total{channel="fcm",provider="firebase"} 1"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
