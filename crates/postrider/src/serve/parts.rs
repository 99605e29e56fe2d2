//! The parts of a server, each made from its section of the configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_channels::{
    CurrentAnswerTable, EnvAndFiles, HttpChannel, Pool, PoolConfig, WebPushChannel, WebPushConfig,
    WebhookChannel, Wiring,
};
use postrider_channels::{NetworkPolicy, registry};
use postrider_core::policy::classify::AnswerTable;
use postrider_core::policy::limiter::Rate;
use postrider_core::ports::store::Store;
use postrider_core::{Channel, ChannelIntake, ChannelKind, Clock, TenantId};
use postrider_dispatch::{DispatchLimits, Policy};
use postrider_store::{EmbeddedStore, MemoryStore, Options};

use super::mailing::Mailing;
use super::pushing::Pushing;
use crate::config::Config;
use crate::config::sections::{Tenant, rate};
use crate::keys::SigningKeys;

pub(super) async fn open_store(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Store>> {
    if config.store.url == "memory:" {
        tracing::warn!("the store is in memory: nothing survives the end of this process");
        return Ok(Arc::new(MemoryStore::new(clock)));
    }
    let data = config.store.data.clone();
    let opened = tokio::task::spawn_blocking({
        let data = data.clone();
        move || EmbeddedStore::open(&data, clock, Options::default())
    });
    let store =
        opened.await?.with_context(|| format!("cannot open the store in {}", data.display()))?;
    Ok(Arc::new(store))
}

pub(super) fn pool(config: &Config) -> anyhow::Result<Pool> {
    let network = &config.network;
    Ok(Pool::new(PoolConfig {
        allow_private_targets: network.allow_private_targets,
        allow_plain_http: network.allow_plain_http,
        extra_ca_file: network.extra_ca_file.clone(),
        hosts: network.hosts.clone(),
        connections_max: network.connections_max,
        http1_connections_max: network.http1_connections_max,
        streams_max: network.streams_max,
        ..PoolConfig::default()
    })?)
}

pub(super) fn intakes(
    config: &Config,
    mailing: &Mailing,
    pushing: &Pushing,
) -> Vec<Arc<dyn ChannelIntake>> {
    let policy = NetworkPolicy {
        allow_private_targets: config.network.allow_private_targets,
        allow_plain_http: config.network.allow_plain_http,
    };
    let mut intakes = registry::intakes_without_accounts(policy);
    intakes.extend(mailing.intakes(config, policy));
    intakes.extend(pushing.intakes());
    intakes
}

/// What a channel needs from the outside, with its own deadline.
pub(super) fn wiring(
    pool: &Pool,
    clock: &Arc<dyn Clock>,
    answers: &Arc<CurrentAnswerTable>,
) -> impl Fn(u64) -> Wiring + use<> {
    let all = Wiring { answers: answers.clone(), ..Wiring::new(pool.clone(), clock.clone()) };
    move |timeout_s| Wiring { attempt_timeout: Duration::from_secs(timeout_s), ..all.clone() }
}

pub(super) fn channels(
    config: &Config,
    wiring: impl Fn(u64) -> Wiring,
    signing: &Arc<SigningKeys>,
    mailing: &Mailing,
    pushing: &Pushing,
) -> anyhow::Result<Vec<Arc<dyn Channel>>> {
    let credentials = EnvAndFiles::allowing(config.http.allowed_credentials());
    let webpush =
        WebPushConfig { subject: config.webpush.subject.clone(), ..WebPushConfig::default() };
    let mut channels: Vec<Arc<dyn Channel>> = vec![
        Arc::new(WebPushChannel::new(wiring(config.webpush.timeout_s), signing.clone(), &webpush)?),
        Arc::new(WebhookChannel::new(wiring(config.webhook.timeout_s), signing.clone())),
        Arc::new(HttpChannel::new(wiring(config.http.timeout_s), Arc::new(credentials))),
    ];
    channels.extend(mailing.channels(config, wiring));
    channels.extend(pushing.channels());
    Ok(channels)
}

/// Random numbers for jitter start here.
pub(super) fn seed() -> anyhow::Result<u64> {
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed).ok().context("the system gives no random numbers")?;
    Ok(u64::from_le_bytes(seed))
}

/// The built-in table of answers with the operator's rows on top.
pub(crate) fn answers(config: &Config) -> AnswerTable {
    postrider_channels::answers::with_user_rows(config.classify.clone())
}

/// What of the configuration can change while the server runs.
pub(crate) fn policy(config: &Config) -> Policy {
    Policy::new(config.class_list(), limits(config))
        .bounded(config.capacity.bounds(&config.tenants))
}

fn limits(config: &Config) -> DispatchLimits {
    DispatchLimits {
        per_origin: HashMap::from([
            (ChannelKind::Webpush, config.webpush.concurrency),
            (ChannelKind::Webhook, config.webhook.concurrency),
            (ChannelKind::Http, config.http.concurrency),
            (ChannelKind::Fcm, config.fcm.concurrency),
            (ChannelKind::Apns, config.apns.concurrency),
            (ChannelKind::Email, config.email.concurrency),
            (ChannelKind::Sms, config.sms.concurrency),
            (ChannelKind::Chat, config.chat.concurrency),
        ]),
        concurrency: config.dispatch.concurrency,
        lease: Duration::from_secs(config.dispatch.lease_s),
        settle_batch: config.dispatch.settle_batch,
        settle_linger: Duration::from_millis(config.dispatch.settle_linger_ms),
        breaker: config.breaker.policy(),
        rates: rates(config),
        credential_rates: credential_rates(config),
        address_rates: address_rates(config),
        tenant_rates: tenant_rates(config),
        weights: config.tenants.iter().map(|(n, t)| (TenantId::new(n), t.weight)).collect(),
        retry_budget: config.retry_budget.policy(),
        strikes: config.strikes.rules(),
    }
}

fn credential_rates(config: &Config) -> HashMap<ChannelKind, Rate> {
    let (push, hook, http) = (&config.webpush, &config.webhook, &config.http);
    let all = [
        (ChannelKind::Webpush, push.rate_per_credential_s, push.rate_burst, push.rate_ramp_s),
        (ChannelKind::Webhook, hook.rate_per_credential_s, hook.rate_burst, hook.rate_ramp_s),
        (ChannelKind::Http, http.rate_per_credential_s, http.rate_burst, http.rate_ramp_s),
    ];
    let given = all.map(|(kind, per_s, burst, ramp_s)| Some((kind, rate(per_s, burst, ramp_s)?)));
    given.into_iter().flatten().collect()
}

fn address_rates(config: &Config) -> HashMap<ChannelKind, Rate> {
    let all = [
        (ChannelKind::Webpush, config.webpush.rate_per_address_s),
        (ChannelKind::Webhook, config.webhook.rate_per_address_s),
        (ChannelKind::Http, config.http.rate_per_address_s),
    ];
    all.into_iter().filter_map(|(kind, per_s)| Some((kind, rate(per_s, 1, 0)?))).collect()
}

fn rates(config: &Config) -> HashMap<ChannelKind, Rate> {
    let (push, hook, http) = (&config.webpush, &config.webhook, &config.http);
    let (fcm, apns) = (&config.fcm, &config.apns);
    let (email, sms, chat) = (&config.email, &config.sms, &config.chat);
    [
        (ChannelKind::Webpush, rate(push.rate_per_s, push.rate_burst, push.rate_ramp_s)),
        (ChannelKind::Webhook, rate(hook.rate_per_s, hook.rate_burst, hook.rate_ramp_s)),
        (ChannelKind::Http, rate(http.rate_per_s, http.rate_burst, http.rate_ramp_s)),
        (ChannelKind::Fcm, rate(fcm.rate_per_s, fcm.rate_burst, fcm.rate_ramp_s)),
        (ChannelKind::Apns, rate(apns.rate_per_s, apns.rate_burst, apns.rate_ramp_s)),
        (ChannelKind::Email, rate(email.rate_per_s, email.rate_burst, email.rate_ramp_s)),
        (ChannelKind::Sms, rate(sms.rate_per_s, sms.rate_burst, sms.rate_ramp_s)),
        (ChannelKind::Chat, rate(chat.rate_per_s, chat.rate_burst, chat.rate_ramp_s)),
    ]
    .into_iter()
    .filter_map(|(kind, rate)| Some((kind, rate?)))
    .collect()
}

fn tenant_rates(config: &Config) -> HashMap<TenantId, Rate> {
    let limit = |(name, tenant): (&String, &Tenant)| {
        Some((TenantId::new(name), rate(tenant.rate_per_s, tenant.rate_burst, 0)?))
    };
    config.tenants.iter().filter_map(limit).collect()
}
