//! The Apple Push Notification service: HTTP/2 only, by token or by certificate.
//!
//! Shares provider tokens between requests, uses one key per connection, and looks for a device in both environments
//! before it counts as gone.

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

use postrider_core::policy::account::AccountOffer;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, Message, Outcome, Report, Target, TenantId, Timestamp,
};

pub use account::ApnsAccount;
pub use content::ApnsContent;
pub use intake::ApnsIntake;
pub use sender::ApnsSender;
pub use target::{ApnsEnvironment, ApnsTarget};

use crate::accounts::{Account, AccountConfig, Accounts};
use crate::deliver::{
    Ended, Protocol, Reading, Wiring, bad_content, content_of, impl_channel, misconfigured,
    unreadable_credential,
};
use crate::pool::{Endpoint, Request, Response};
use crate::scrub;
use crate::target::{ChannelTarget, target_of};
use render::ApnsDraft;
pub(crate) use render::collapse_id;
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
        let accounts = Accounts::with(KIND, accounts, policy, &wiring);
        Self { wiring, accounts: Arc::new(accounts) }
    }

    pub fn accounts(&self) -> &Arc<Accounts<ApnsSender>> {
        &self.accounts
    }

    /// Reads every credential. The watch and `doctor` report one that cannot be read; the next attempt reads it again.
    pub async fn load(&self) {
        for account in self.accounts.iter() {
            let _ = account.settings.connections(&self.wiring.pool).await;
        }
    }
}

impl_channel!(ApnsChannel);

impl Protocol for ApnsChannel {
    type Ready = ApnsDraft;

    fn prepare(&self, attempt: &Attempt) -> Result<ApnsDraft, Ended> {
        let (content, own) = content_of(KIND, &attempt.message)?;
        render::draft(&content, &own).map_err(bad_content)
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    fn fits(&self, account: &str, target: &Target, _: &Message) -> bool {
        let sender = self.accounts.settings(account);
        let target = target.read::<ApnsTarget<'_>>().ok();
        sender.is_some_and(|sender| target.is_none_or(|t| sender.may_send_to(&t.topic)))
    }

    async fn send(&self, attempt: &Attempt, draft: ApnsDraft) -> Result<Report, Ended> {
        let target: ApnsTarget<'_> = target_of(attempt)?;
        let fits = |sender: &ApnsSender| sender.may_send_to(&target.topic);
        let chosen = self.accounts.choose(attempt, fits).await?;
        let known = target.environment.or(target.worked);
        let mut home = known.unwrap_or(ApnsEnvironment::Production);
        let called = self.call(&chosen, (attempt, &target, &draft), home, known.is_some()).await;
        let mut report = called.unwrap_or_else(|ended| *ended);
        if known.is_none() && report.code.as_deref() == Some("BadDeviceToken") {
            // The environment is unknown: the device may be in the other one.
            home = home.other();
            let called = self.call(&chosen, (attempt, &target, &draft), home, true).await;
            report = called.unwrap_or_else(|ended| *ended);
        }
        let is_registered = attempt.address_since.is_some();
        if report.outcome == Outcome::Accepted && target.worked != Some(home) && is_registered {
            let known = ApnsTarget { worked: Some(home), ..target.clone() };
            report.target = Some(Arc::new(known.to_target()));
        }
        if report.outcome == Outcome::Config {
            chosen.settings.credential.forget();
        }
        Ok(chosen.settle(attempt, report, fits))
    }
}

impl ApnsChannel {
    /// One call. `is_home` says that the device is in this environment or in none.
    async fn call(
        &self,
        account: &Account<ApnsSender>,
        (attempt, target, draft): (&Attempt, &ApnsTarget<'_>, &ApnsDraft),
        environment: ApnsEnvironment,
        is_home: bool,
    ) -> Result<Report, Ended> {
        let sender = &account.settings;
        let connections = sender.connections(&self.wiring.pool).await;
        let connections = connections.map_err(|why| unreadable_credential(&account.name, &why))?;
        let endpoint = connections.endpoint(environment, &target.token)?;
        let token = connections
            .token(sender, self.wiring.clock.wall(), attempt.resign)
            .map_err(|_| misconfigured("apns_sign", "no provider token could be signed"))?;
        let request = |_| Request {
            method: ::http::Method::POST,
            headers: wire::headers(attempt, draft, &target.topic, token.as_deref()),
            body: draft.payload.clone(),
        };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let now = self.wiring.clock.wall();
        let refused = answer::read(&response);
        react(sender, &endpoint, &response, refused.as_ref().map(|r| &*r.reason), now);
        let proven = is_home && (sender.works(now) || target.worked == Some(environment));
        let age = token.map(|token| now.since(token.signed_at));
        let reading = Reading {
            service: "apns",
            code: answer::code(refused, response.status.as_u16(), attempt, proven),
            // A younger token cannot be replaced: the key or the clock is wrong.
            token_age: age.filter(|age| *age > KEPT_FOR),
            provider_id: scrub::header(&response.headers, "apns-id"),
            hide: &[&target.token],
            ..Reading::default()
        };
        Ok(self.wiring.judge(&response, reading))
    }
}

/// What an answer means for the connections and the token, beyond this one attempt.
fn react(
    sender: &ApnsSender,
    endpoint: &Endpoint,
    response: &Response,
    reason: Option<&str>,
    now: Timestamp,
) {
    match reason {
        None if response.status.is_success() => sender.worked(now),
        Some("TooManyProviderTokenUpdates") => {
            sender.tokens.iter().for_each(|tokens| tokens.rest(now));
            endpoint.reconnect();
        }
        Some("UnrelatedKeyIdInToken" | "IdleTimeout" | "Shutdown") => endpoint.reconnect(),
        _ => {}
    }
}
