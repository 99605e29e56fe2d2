//! The Apple Push Notification service: HTTP/2 only, by token or by certificate.
//!
//! Never makes a provider token per request, never mixes two keys on one connection, and never takes a
//! device for dead because it lives in the other environment.

mod account;
mod answer;
mod content;
mod intake;
mod key;
mod probe;
pub(crate) mod render;
mod sender;
mod settings;
mod target;
mod token;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, Target};

pub use account::ApnsAccount;
pub use content::ApnsContent;
pub use intake::ApnsIntake;
pub use sender::ApnsSender;
pub use target::{ApnsEnvironment, ApnsTarget};

use crate::accounts::{Account, AccountConfig, Accounts};
use crate::deliver::{Ended, Protocol, Reading, Wiring, bad_content, impl_channel, misconfigured};
use crate::pool::{Endpoint, Request, Response};
use crate::scrub;
use crate::target::{ChannelTarget, target_of};
use render::ApnsDraft;
pub(crate) use render::collapse_id;
use sender::ApnsConnections;
pub use settings::ApnsSection;
use token::{KEPT_FOR, ProviderTokens};

pub const KIND: ChannelKind = ChannelKind::new("apns");
pub const TRAITS: ChannelTraits = ChannelTraits {
    has_accounts: true,
    // 30 days: the longest that Apple keeps a notification.
    ttl_s_max: 2_592_000,
    ..ChannelTraits::PLAIN
};

pub struct ApnsChannel {
    wiring: Wiring,
    accounts: Arc<Accounts<ApnsSender>>,
}

impl ApnsChannel {
    pub fn new(
        wiring: Wiring,
        accounts: Vec<AccountConfig<ApnsAccount>>,
        policy: BreakerPolicy,
    ) -> Self {
        // Accounts of one team and key share their tokens: Apple counts them together.
        let mut shared: HashMap<(String, String), Arc<ProviderTokens>> = HashMap::new();
        let mut sender = |settings: ApnsAccount| {
            let ids = settings.team_id.clone().zip(settings.key_id.clone());
            let tokens = ids.map(|(team, key)| {
                let new = Arc::new(ProviderTokens::new(&team, &key));
                shared.entry((team, key)).or_insert(new).clone()
            });
            ApnsSender::new(settings, tokens)
        };
        let accounts = accounts.into_iter().map(|config| config.map(&mut sender)).collect();
        let accounts = Accounts::new(KIND, accounts, policy, wiring.clock.clone());
        Self { wiring, accounts: Arc::new(accounts) }
    }

    pub fn accounts(&self) -> &Arc<Accounts<ApnsSender>> {
        &self.accounts
    }

    /// Reads every credential. The watch and `doctor` report one that cannot be read; it is
    /// tried again when it is needed.
    pub async fn load(&self) {
        for account in self.accounts.iter() {
            let _ = account.settings.connections(&self.wiring.pool).await;
        }
    }
}

impl_channel!(ApnsChannel);

impl Protocol for ApnsChannel {
    type Ready = ApnsDraft;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<ApnsDraft, Ended>> {
        let draft = |attempt: &Attempt| {
            let content = Content::parse(&attempt.message.content).map_err(bad_content)?;
            render::draft(&content).map_err(bad_content)
        };
        attempts.iter().map(draft).collect()
    }

    async fn send(&self, attempt: &Attempt, draft: ApnsDraft) -> Report {
        let target: ApnsTarget<'_> = match target_of(attempt) {
            Ok(target) => target,
            Err(ended) => return *ended,
        };
        let fits = |sender: &ApnsSender| sender.may_send_to(&target.topic);
        let chosen = match self.accounts.choose(attempt, fits).await {
            Ok(chosen) => chosen,
            Err(held) => return *held,
        };
        let known = target.environment.or(target.worked);
        let mut home = known.unwrap_or(ApnsEnvironment::Production);
        let mut report =
            self.call(&chosen, (attempt, &target), &draft, home, known.is_some()).await;
        if known.is_none() && report.code.as_deref() == Some("BadDeviceToken") {
            // Nobody said where the device is at home: it may be in the other place.
            home = home.other();
            report = self.call(&chosen, (attempt, &target), &draft, home, true).await;
        }
        if report.outcome == Outcome::Accepted && target.worked != Some(home) {
            report.target = remembered(attempt, &target, home);
        }
        if report.outcome == Outcome::Config {
            chosen.settings.forget();
        }
        chosen.settle(attempt, report, fits)
    }
}

/// A registered device with the place where it was accepted.
fn remembered(
    attempt: &Attempt,
    target: &ApnsTarget<'_>,
    home: ApnsEnvironment,
) -> Option<Arc<Target>> {
    attempt.address_since?;
    let known = ApnsTarget { worked: Some(home), ..target.clone() };
    Some(Arc::new(known.to_target()))
}

impl ApnsChannel {
    /// One call. `is_home` says that there is no other place to look for the device.
    async fn call(
        &self,
        account: &Account<ApnsSender>,
        (attempt, target): (&Attempt, &ApnsTarget<'_>),
        draft: &ApnsDraft,
        environment: ApnsEnvironment,
        is_home: bool,
    ) -> Report {
        let called = async {
            let connections = self.connections(account).await?;
            let endpoint = connections.endpoint(environment, &target.token)?;
            let call = (attempt, target);
            self.exchange(account, &connections, &endpoint, call, draft, (environment, is_home))
                .await
        };
        called.await.unwrap_or_else(|ended: Ended| *ended)
    }

    async fn connections(
        &self,
        account: &Account<ApnsSender>,
    ) -> Result<Arc<ApnsConnections>, Ended> {
        account.settings.connections(&self.wiring.pool).await.map_err(|why| {
            tracing::error!(account = &*account.name, why, "no credential");
            let detail = format!("the credential of account {} cannot be used", account.name);
            misconfigured("credential_unreadable", &detail)
        })
    }

    async fn exchange(
        &self,
        account: &Account<ApnsSender>,
        connections: &ApnsConnections,
        endpoint: &Endpoint,
        (attempt, target): (&Attempt, &ApnsTarget<'_>),
        draft: &ApnsDraft,
        (environment, is_home): (ApnsEnvironment, bool),
    ) -> Result<Report, Ended> {
        let sender = &account.settings;
        let now = self.wiring.clock.now();
        let token = connections
            .token(sender, now, attempt.resign)
            .map_err(|_| misconfigured("apns_sign", "no provider token could be signed"))?;
        let request = |now| Request {
            method: ::http::Method::POST,
            headers: wire::headers(attempt, draft, &target.topic, token.as_deref(), now),
            body: draft.payload.clone(),
        };
        let response = self.wiring.exchange(attempt, endpoint, request).await?;
        let now = self.wiring.clock.now();
        let refused = answer::read(&response);
        self.react(sender, endpoint, &response, refused.as_ref().map(|r| &*r.reason));
        let proven = is_home && (sender.works(now) || target.worked == Some(environment));
        let age = token.map(|token| now.since(token.signed_at));
        let reading = Reading {
            service: "apns",
            code: answer::code(refused, response.status.as_u16(), attempt, proven),
            retry_after: None,
            // A younger one cannot be replaced: then it is the key, or the clock.
            token_age: age.filter(|age| *age > KEPT_FOR),
            provider_id: scrub::header(&response.headers, "apns-id"),
            hide: &[&target.token],
        };
        Ok(self.wiring.judge(&response, reading))
    }

    /// What an answer means for the connections and the token, beyond this one attempt.
    fn react(
        &self,
        sender: &ApnsSender,
        endpoint: &Endpoint,
        response: &Response,
        reason: Option<&str>,
    ) {
        let now = self.wiring.clock.now();
        match reason {
            None if response.status.is_success() => sender.worked(now),
            Some("TooManyProviderTokenUpdates") => {
                sender.rest(now);
                endpoint.reconnect();
            }
            Some("UnrelatedKeyIdInToken" | "IdleTimeout" | "Shutdown") => endpoint.reconnect(),
            _ => {}
        }
    }
}
