//! The section `[limits]`: how much a tenant may keep of what stays until somebody deletes it.

use postrider_channels::section;

use super::{TenantSection, check_range};
use crate::config::ConfigError;

section! {
    /// How much each tenant may keep, unless [tenants.NAME] says otherwise. A tenant at a limit gets 403 with the
    /// limit, what was found and what makes room; others notice nothing. 0 is no limit.
    QuotaSection as "limits" {
        /// Registered addresses.
        addresses_max: u64 = 1_000_000,
        /// Recipients, their aliases, suppressions and facts of addresses, together.
        audience_max: u64 = 5_000_000,
        /// Templates set by API.
        templates_max: u64 = 500,
        /// Bytes of these templates together.
        template_bytes_max: u64 = 4 << 20,
        /// Dead letters that were not discarded. Beyond it the tenant's new messages are refused.
        dead_letters_max: u64 = 1_000_000,
        /// Bytes of their bodies and addresses. Beyond it the tenant's new messages are refused.
        dead_letter_bytes_max: u64 = 8 << 30,
        /// Lanes with pending deliveries. Beyond it messages that need one more lane are refused.
        lanes_max: u64 = 20_000,
        /// Addresses with strikes. Beyond it the tenant's new messages are refused.
        strikes_max: u64 = 1_000_000,
        /// Marks of addresses that are gone. Beyond it the tenant's new messages are refused.
        gone_marks_max: u64 = 5_000_000,
        /// API keys. Keys that were revoked or are over make room for new ones.
        keys_max: u64 = 200,
        /// VAPID keys. Older ones stay, because subscriptions were made with them.
        vapid_keys_max: u64 = 50,
        /// Webhook secrets that sign. Secrets whose overlap is over make room for new ones.
        webhook_secrets_max: u64 = 10,
        /// Subscriptions to events.
        event_subscriptions_max: u64 = 20,
        /// Pauses of lanes. One that is over, or was ended, makes room.
        pauses_max: u64 = 1_000,
        /// Rotations of VAPID keys, and of webhook secrets, in one minute. More get 429.
        rotations_per_minute: u64 = 3,
    }
}

impl QuotaSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("limits.rotations_per_minute", self.rotations_per_minute, 1..=1_000)
    }

    /// The limits of a tenant.
    pub(crate) fn of(&self, own: Option<&TenantSection>) -> Self {
        let Some(own) = own else { return self.clone() };
        Self {
            addresses_max: own.addresses_max.unwrap_or(self.addresses_max),
            audience_max: own.audience_max.unwrap_or(self.audience_max),
            templates_max: own.templates_max.unwrap_or(self.templates_max),
            template_bytes_max: own.template_bytes_max.unwrap_or(self.template_bytes_max),
            dead_letters_max: own.dead_letters_max.unwrap_or(self.dead_letters_max),
            dead_letter_bytes_max: own.dead_letter_bytes_max.unwrap_or(self.dead_letter_bytes_max),
            lanes_max: own.lanes_max.unwrap_or(self.lanes_max),
            strikes_max: own.strikes_max.unwrap_or(self.strikes_max),
            gone_marks_max: own.gone_marks_max.unwrap_or(self.gone_marks_max),
            keys_max: own.keys_max.unwrap_or(self.keys_max),
            vapid_keys_max: own.vapid_keys_max.unwrap_or(self.vapid_keys_max),
            webhook_secrets_max: own.webhook_secrets_max.unwrap_or(self.webhook_secrets_max),
            event_subscriptions_max: own
                .event_subscriptions_max
                .unwrap_or(self.event_subscriptions_max),
            pauses_max: own.pauses_max.unwrap_or(self.pauses_max),
            rotations_per_minute: self.rotations_per_minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_own_limits_or_those_of_all() {
        let all = QuotaSection::default();
        let own = TenantSection { keys_max: Some(3), ..TenantSection::default() };
        assert_eq!(all.of(Some(&own)).keys_max, 3);
        assert_eq!(all.of(Some(&own)).lanes_max, all.lanes_max);
        assert_eq!(all.of(None).keys_max, all.keys_max);
    }
}
