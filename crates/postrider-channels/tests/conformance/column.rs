//! A column of the matrix that a channel over HTTP declares in its own folder, as `COLUMN` of
//! `tests/conformance.rs`. The suite builds the channel through its definition, as a server does. Columns of older
//! channels are variants of [`crate::fixture::Subject`].

use std::sync::Arc;

use postrider_channels::accounts::AccountConfig;
use postrider_channels::definition::{BuiltChannel, ChannelParts};
use postrider_channels::{NetworkPolicy, Wiring, registry};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{ChannelKind, Scope, Target};
use serde_json::Value;

use crate::fixture::{Keys, Secrets};
use crate::provider::{Answer, Received};

pub(crate) struct Column {
    /// The name in the matrix.
    pub(crate) name: &'static str,
    /// The name of the channel in the registry.
    pub(crate) channel: &'static str,
    /// The account that sends to this origin with this credential; none for a channel without accounts.
    pub(crate) account: Option<fn(origin: &str, credential: &str) -> Value>,
    /// The target that is named like this path; for a channel without accounts, the one at this URL.
    pub(crate) target: fn(path_or_url: &str) -> Target,
    /// The field of the target that no report may repeat.
    pub(crate) secret_field: &'static str,
    /// What 429 makes wait.
    pub(crate) throttle_scope: Scope,
    /// The answer for an address that is gone.
    pub(crate) gone: fn() -> Answer,
    /// The answer for a credential that is not valid.
    pub(crate) refused_credential: fn() -> Answer,
    /// The credential in a request.
    pub(crate) credential_of: fn(&Received) -> String,
}

impl Column {
    pub(crate) async fn build(
        &self,
        wiring: Wiring,
        origin: &str,
        credential: &str,
    ) -> BuiltChannel {
        let account = self.account.map(|account| AccountConfig {
            name: "main".to_owned(),
            tenant: None,
            is_far: false,
            priority: 0,
            cost: 0.0,
            rate: None,
            settings: account(origin, credential).as_object().unwrap().clone(),
        });
        let keys = Arc::new(Keys::generate());
        let parts = ChannelParts {
            wiring,
            network: NetworkPolicy { allow_private_targets: true, allow_plain_http: false },
            breaker: BreakerPolicy::default(),
            accounts: account.into_iter().collect(),
            vapid_keys: keys,
            webhook_secrets: Arc::new(Secrets),
            receipts: None,
        };
        let definition = registry::definition(ChannelKind::new(self.channel)).unwrap();
        definition.build(parts).await.unwrap()
    }
}

/// The credential of a request that has it in its header.
pub(crate) fn authorization(received: &Received) -> String {
    received.headers["authorization"].to_str().unwrap().to_owned()
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Column {}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
