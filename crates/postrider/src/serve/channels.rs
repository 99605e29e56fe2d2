//! Builds every channel from the configuration, for a server and for `doctor`. Knows no single channel.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::accounts::health::AccountHealth;
use postrider_channels::definition::{BuiltChannel, ChannelParts};
use postrider_channels::webhook::WebhookSecret;
use postrider_channels::{
    ChannelDefinition, CurrentAnswerTable, NetworkPolicy, ReceiptLinks, VapidKey, VapidKeys,
    WebhookSecrets, Wiring,
};
use postrider_core::{Clock, KeyId, TenantId};

use super::parts;
use crate::config::Config;
use crate::receipts::{PublicReceiptLinks, ReceiptTokens};

/// Builds all channels. Also reads the credentials of their accounts; one that cannot be read does not
/// stop the start.
pub(super) async fn build<K: VapidKeys + WebhookSecrets + 'static>(
    config: &Config,
    wiring: &Wiring,
    keys: &Arc<K>,
    receipts: &Arc<ReceiptTokens>,
) -> anyhow::Result<Vec<BuiltChannel>> {
    let valid = Duration::from_secs(config.receipts.token_valid_s);
    let links = config.server.public_url.as_deref().map(|url| {
        Arc::new(PublicReceiptLinks::new(receipts.clone(), url, valid)) as Arc<dyn ReceiptLinks>
    });
    let mut built = Vec::new();
    for channel in config.channels.iter() {
        let parts = channel_parts(config, channel, wiring, keys);
        built.push(channel.build(ChannelParts { receipts: links.clone(), ..parts }).await?);
    }
    Ok(built)
}

fn channel_parts<K: VapidKeys + WebhookSecrets + 'static>(
    config: &Config,
    channel: &dyn ChannelDefinition,
    wiring: &Wiring,
    keys: &Arc<K>,
) -> ChannelParts {
    let attempt_timeout = Duration::from_secs(channel.limits().timeout_s);
    let ours = config.accounts.iter().filter(|(_, account)| account.channel == channel.kind());
    let own = config.server.region.as_deref();
    ChannelParts {
        wiring: Wiring { attempt_timeout, ..wiring.clone() },
        network: NetworkPolicy {
            allow_private_targets: config.network.allow_private_targets.is_any(),
            allow_plain_http: config.network.allow_plain_http.is_any(),
        },
        breaker: config.breaker.policy(),
        accounts: ours.map(|(name, account)| account.config(name, own)).collect(),
        vapid_keys: keys.clone(),
        webhook_secrets: keys.clone(),
        receipts: None,
    }
}

/// The accounts of a configuration, for `doctor`: with a pool of their own and without a server.
pub(crate) struct AccountsToCheck {
    pub(crate) books: Vec<Arc<dyn AccountHealth>>,
    pub(crate) wiring: Wiring,
}

impl AccountsToCheck {
    pub(crate) async fn open(
        config: &Config,
        clock: Arc<dyn Clock>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let pool = parts::pool(config)?;
        let wiring = parts::wiring(
            &pool,
            &clock,
            &CurrentAnswerTable::new(parts::answers(config)),
            &Arc::default(),
        );
        let mut books = Vec::new();
        for channel in config.channels.iter().filter(|channel| channel.facts().accounts.is_some()) {
            let parts = channel_parts(config, channel, &wiring, &Arc::new(NoKeys));
            books.extend(channel.build(parts).await?.accounts);
        }
        Ok(Self { books, wiring: Wiring { attempt_timeout: timeout, ..wiring } })
    }
}

/// Keys for channels that send nothing.
struct NoKeys;

impl VapidKeys for NoKeys {
    fn key(&self, _tenant: &TenantId, _id: Option<KeyId>) -> Option<Arc<VapidKey>> {
        None
    }
}

impl WebhookSecrets for NoKeys {
    fn secrets(&self, _tenant: &TenantId) -> Vec<Arc<WebhookSecret>> {
        Vec::new()
    }
}
