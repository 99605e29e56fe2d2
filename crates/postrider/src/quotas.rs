//! Quotas: measures what tenants keep, compares it with their limits and refuses what would exceed them. What is
//! measured may be some seconds old; addresses that this server registers meanwhile are counted at once.

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use postrider_core::TenantId;
use postrider_core::ports::store::{Holdings, Store, StoreResult};
use postrider_dispatch::{QuotaExcess, TenantOverQuota};

use crate::api::SharedState;
use crate::config::Config;
use crate::config::sections::QuotaSection;
use crate::keys::SigningKind;

/// The shortest time between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// A measurement takes at most this part of the time ...
const MEASURE_PART: u32 = 50;
/// ... and this part while a tenant has used half of a quota: what it adds in between is not counted.
const MEASURE_PART_NEAR: u32 = 5;

/// One quota of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaUse {
    /// The setting without its section, such as `addresses_max`.
    pub setting: &'static str,
    pub used: u64,
    /// 0 for no limit.
    pub max: u64,
}

/// What was measured last.
#[derive(Default)]
pub struct TenantQuotas(RwLock<MeasuredHoldings>);

#[derive(Default)]
struct MeasuredHoldings {
    tenants: HashMap<TenantId, Holdings>,
    /// Addresses that this server registered and deleted since.
    addresses: HashMap<TenantId, i64>,
    /// Entries about people that it wrote and deleted since.
    entries: HashMap<TenantId, i64>,
}

impl TenantQuotas {
    /// What a tenant keeps in the store.
    pub fn holdings(&self, tenant: &TenantId) -> Holdings {
        let measured = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = measured.tenants.get(tenant).copied().unwrap_or_default();
        let since = measured.addresses.get(tenant).copied().unwrap_or(0);
        found.addresses = found.addresses.saturating_add_signed(since);
        let since = measured.entries.get(tenant).copied().unwrap_or(0);
        found.entries = found.entries.saturating_add_signed(since);
        found
    }

    /// An error if the tenant may not register one more address.
    pub fn check_address(&self, config: &Config, tenant: &TenantId) -> Result<(), QuotaExcess> {
        let max = limits_of(config, tenant).addresses_max;
        let found = self.holdings(tenant).addresses;
        if max == 0 || found < max {
            return Ok(());
        }
        let remedy = "delete addresses that are not needed, or raise the limit";
        Err(QuotaExcess { quota: "limits.addresses_max", found, allowed: max, remedy })
    }

    /// Addresses were registered (or deleted) by this server.
    pub fn note_addresses(&self, tenant: &TenantId, by: i64) {
        let mut measured = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *measured.addresses.entry(tenant.clone()).or_default() += by;
    }

    /// An error if the tenant may not keep so many more entries about people.
    pub fn check_entries(
        &self,
        config: &Config,
        tenant: &TenantId,
        more: u64,
    ) -> Result<(), QuotaExcess> {
        let max = limits_of(config, tenant).audience_max;
        let found = self.holdings(tenant).entries;
        if max == 0 || more == 0 || found.saturating_add(more) <= max {
            return Ok(());
        }
        let remedy = "delete recipients that are not needed, or raise the limit";
        Err(QuotaExcess { quota: "limits.audience_max", found, allowed: max, remedy })
    }

    /// Entries about people were written (or deleted) by this server.
    pub fn note_entries(&self, tenant: &TenantId, by: i64) {
        if by != 0 {
            let mut measured = self.0.write().unwrap_or_else(PoisonError::into_inner);
            *measured.entries.entry(tenant.clone()).or_default() += by;
        }
    }

    async fn measure(&self, store: &dyn Store) -> StoreResult<()> {
        // What is registered during the measurement may be counted twice until the next one.
        let before = {
            let mut measured = self.0.write().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut measured.addresses), std::mem::take(&mut measured.entries))
        };
        let found = store.holdings().await;
        let mut measured = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                measured.tenants =
                    found.into_iter().map(|each| (each.tenant, each.holdings)).collect();
                Ok(())
            }
            Err(error) => {
                for (tenant, by) in before.0 {
                    *measured.addresses.entry(tenant).or_default() += by;
                }
                for (tenant, by) in before.1 {
                    *measured.entries.entry(tenant).or_default() += by;
                }
                Err(error)
            }
        }
    }

    fn tenants(&self) -> Vec<(TenantId, Holdings)> {
        let measured = self.0.read().unwrap_or_else(PoisonError::into_inner);
        measured.tenants.iter().map(|(tenant, found)| (tenant.clone(), *found)).collect()
    }
}

/// The limits of a tenant in force.
pub(crate) fn limits_of(config: &Config, tenant: &TenantId) -> QuotaSection {
    config.limits.of(config.tenants.get(tenant.as_str()))
}

/// Every quota of a tenant with what is used of it.
pub(crate) fn uses(app: &SharedState, tenant: &TenantId) -> Vec<QuotaUse> {
    let (limits, held) = (limits_of(&app.config(), tenant), app.quotas.holdings(tenant));
    let (templates, template_bytes) = app.templates.set_by(Some(tenant));
    let signing = |kind| app.signing.list(tenant, kind).len() as u64;
    let subscriptions = app.events.subscriptions.of(Some(tenant)).len() as u64;
    let each = |setting, used, max| QuotaUse { setting, used, max };
    vec![
        each("addresses_max", held.addresses, limits.addresses_max),
        each("audience_max", held.entries, limits.audience_max),
        each("templates_max", templates as u64, limits.templates_max),
        each("template_bytes_max", template_bytes as u64, limits.template_bytes_max),
        each("dead_letters_max", held.dead_letters, limits.dead_letters_max),
        each("dead_letter_bytes_max", held.dead_letter_bytes, limits.dead_letter_bytes_max),
        each("lanes_max", held.lanes, limits.lanes_max),
        each("strikes_max", held.strikes, limits.strikes_max),
        each("gone_marks_max", held.gone_marks, limits.gone_marks_max),
        each("keys_max", app.keys.count(Some(tenant)), limits.keys_max),
        each("vapid_keys_max", signing(SigningKind::Vapid), limits.vapid_keys_max),
        each("event_subscriptions_max", subscriptions, limits.event_subscriptions_max),
        each("pauses_max", app.operator.pauses_of(tenant), limits.pauses_max),
        each("webhook_secrets_max", signing(SigningKind::Webhook), limits.webhook_secrets_max),
    ]
}

/// Measures again and again, and tells the intake which tenants may not add messages.
pub(crate) async fn watch(app: SharedState) {
    loop {
        let began = Instant::now();
        let measured = app.quotas.measure(&*app.store).await;
        let took = began.elapsed();
        let part = match measured {
            Ok(()) if enforce(&app).await >= 0.5 => MEASURE_PART_NEAR,
            Ok(()) => MEASURE_PART,
            Err(error) => {
                tracing::warn!(%error, "what tenants keep could not be counted");
                MEASURE_PART
            }
        };
        tokio::time::sleep((took * part).max(MEASURE_EVERY)).await;
    }
}

/// Answers the highest used share of a quota.
async fn enforce(app: &SharedState) -> f64 {
    let config = app.config();
    let mut over = HashMap::new();
    let mut fullest: HashMap<&'static str, f64> = HashMap::new();
    for (tenant, held) in app.quotas.tenants() {
        let limits = limits_of(&config, &tenant);
        for (quota, found, max) in stored(&limits, &held) {
            let share = if max == 0 { 0.0 } else { found as f64 / max as f64 };
            let fullest = fullest.entry(quota).or_default();
            *fullest = fullest.max(share);
        }
        let refused = TenantOverQuota {
            messages: message_excess(&limits, &held),
            lanes: lane_excess(app, &tenant, &limits, &held).await,
        };
        if refused.messages.is_some() || refused.lanes.is_some() {
            over.insert(tenant, refused);
        }
    }
    let highest = fullest.values().copied().fold(0.0, f64::max);
    app.metrics.quotas(fullest.into_iter(), over.len());
    app.intake.quotas().replace(over);
    highest
}

/// The quotas of what is in the store.
fn stored(limits: &QuotaSection, held: &Holdings) -> [(&'static str, u64, u64); 7] {
    [
        ("addresses_max", held.addresses, limits.addresses_max),
        ("audience_max", held.entries, limits.audience_max),
        ("dead_letters_max", held.dead_letters, limits.dead_letters_max),
        ("dead_letter_bytes_max", held.dead_letter_bytes, limits.dead_letter_bytes_max),
        ("lanes_max", held.lanes, limits.lanes_max),
        ("strikes_max", held.strikes, limits.strikes_max),
        ("gone_marks_max", held.gone_marks, limits.gone_marks_max),
    ]
}

/// The first quota that leaves no room for any message.
fn message_excess(limits: &QuotaSection, held: &Holdings) -> Option<QuotaExcess> {
    const DISCARD: &str =
        "replay or discard dead letters (`postrider dead discard`), or raise the limit";
    const FORGIVE: &str = "forgive strikes (`postrider addresses forgive`), wait until they are old, or raise the limit";
    const GONE: &str = "register the addresses again that work, or raise the limit";
    let quotas = [
        ("limits.dead_letters_max", held.dead_letters, limits.dead_letters_max, DISCARD),
        (
            "limits.dead_letter_bytes_max",
            held.dead_letter_bytes,
            limits.dead_letter_bytes_max,
            DISCARD,
        ),
        ("limits.strikes_max", held.strikes, limits.strikes_max, FORGIVE),
        ("limits.gone_marks_max", held.gone_marks, limits.gone_marks_max, GONE),
    ];
    let full = quotas.into_iter().find(|(_, found, max, _)| *max > 0 && found >= max);
    full.map(|(quota, found, allowed, remedy)| QuotaExcess { quota, found, allowed, remedy })
}

async fn lane_excess(
    app: &SharedState,
    tenant: &TenantId,
    limits: &QuotaSection,
    held: &Holdings,
) -> Option<(QuotaExcess, HashSet<std::sync::Arc<postrider_core::LaneKey>>)> {
    let (found, allowed) = (held.lanes, limits.lanes_max);
    if allowed == 0 || found < allowed {
        return None;
    }
    let known = app.store.lanes(Some(tenant), usize::try_from(found).unwrap_or(usize::MAX)).await;
    let known = known.inspect_err(|error| tracing::warn!(%error, "lanes could not be listed"));
    let known = known.ok()?.into_iter().map(|lane| lane.key).collect();
    let remedy = "wait until what is pending was sent, send to fewer hosts, or raise the limit";
    Some((QuotaExcess { quota: "limits.lanes_max", found, allowed, remedy }, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_full_quota_refuses_messages() {
        let limits = QuotaSection { dead_letters_max: 10, gone_marks_max: 0, ..Default::default() };
        let held =
            |dead_letters| Holdings { dead_letters, gone_marks: 1 << 40, ..Default::default() };
        assert_eq!(message_excess(&limits, &held(9)), None, "0 is no limit");
        let excess = message_excess(&limits, &held(10)).unwrap();
        assert_eq!(
            (excess.quota, excess.found, excess.allowed),
            ("limits.dead_letters_max", 10, 10)
        );
    }

    #[test]
    fn addresses_of_this_server_count_at_once() {
        let quotas = TenantQuotas::default();
        let acme = TenantId::new("acme");
        let text = "[limits]\naddresses_max = 2";
        let config = Config::parse(text, "test", &crate::config::Environment::empty()).unwrap();
        assert!(quotas.check_address(&config, &acme).is_ok());
        quotas.note_addresses(&acme, 2);
        assert_eq!(quotas.check_address(&config, &acme).unwrap_err().found, 2);
        quotas.note_addresses(&acme, -1);
        assert!(quotas.check_address(&config, &acme).is_ok());
    }
}
