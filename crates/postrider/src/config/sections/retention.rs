//! How long the ledger remembers.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_channels::section;
use postrider_core::TenantId;
use postrider_core::ports::store::{Retention, RetentionTimes};

use super::TenantSection;

section! {
    /// How long the ledger remembers.
    RetentionSection as "retention" {
        /// Final deliveries and their messages are forgotten after this many days, unless
        /// [tenants.NAME] says otherwise. Dead letters stay as long as they can be replayed.
        days: u32 = 30,
        /// Dead letters can be replayed for this many days, unless [tenants.NAME] says otherwise. Then
        /// they are discarded: address and body are erased. 0 to keep them until somebody decides.
        dead_letter_days: u32 = 90,
        /// Entries of the audit log are deleted after this many days. 0 to keep them for ever.
        audit_days: u32 = 365,
    }
}

impl RetentionSection {
    /// How long entries of the audit log are kept; `None` for ever.
    pub(crate) fn audit(&self) -> Option<Duration> {
        let time = Duration::from_secs(u64::from(self.audit_days) * 86_400);
        (self.audit_days > 0).then_some(time)
    }

    /// The retention of all tenants.
    pub(crate) fn times(&self, tenants: &BTreeMap<String, TenantSection>) -> Retention {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
        let times = |own: Option<&TenantSection>| {
            let deliveries = own.and_then(|own| own.retention_days).unwrap_or(self.days);
            let dead = own.and_then(|own| own.dead_letter_days).unwrap_or(self.dead_letter_days);
            let dead_letters = (dead > 0).then(|| days(dead));
            RetentionTimes { deliveries: days(deliveries), dead_letters }
        };
        let own = |(name, own): (&String, &TenantSection)| (TenantId::new(name), times(Some(own)));
        Retention { default: times(None), tenants: tenants.iter().map(own).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_own_times_or_those_of_all() {
        let day = Duration::from_secs(86_400);
        let own = TenantSection { retention_days: Some(7), ..TenantSection::default() };
        let never = TenantSection { dead_letter_days: Some(0), ..TenantSection::default() };
        let tenants = BTreeMap::from([("acme".to_owned(), own), ("shop".to_owned(), never)]);
        let retention = RetentionSection::default().times(&tenants);
        let times = |name: &str| {
            let times = retention.times(&TenantId::new(name));
            (times.deliveries, times.dead_letters)
        };
        assert_eq!(times("other"), (day * 30, Some(day * 90)));
        assert_eq!(times("acme"), (day * 7, Some(day * 90)));
        assert_eq!(times("shop"), (day * 30, None));
    }
}
