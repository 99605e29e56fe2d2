//! ntfy: a message published as JSON to a topic, one call per message. A server is an account. A topic is a secret on
//! a server that is open to all and appears in no log, detail or error. Subscribes to nothing and uploads no file.

mod account;
mod answer;
mod content;
mod intake;
mod probe;
mod render;
mod settings;
mod target;

use std::sync::Arc;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, HeaderValue, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::policy::account::AccountOffer;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, TenantId};

pub use account::NtfyAccount;
pub use content::NtfyContent;
pub use intake::NtfyIntake;
pub use settings::NtfySection;
pub use target::NtfyTarget;

use crate::accounts::{Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, content_of, hidden_cause, impl_channel};
use crate::pool::{JSON, Request, own_headers};
use crate::scrub::hide_exactly;
use crate::target::target_of;
use answer::NtfyAnswer;

pub const KIND: ChannelKind = ChannelKind::new("ntfy");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

/// A server that messages can be published to.
pub struct NtfyServer {
    /// The base URL, without a slash at the end.
    endpoint: String,
    /// Whose password the secret is. Without a user, the secret is an access token.
    user: Option<String>,
    secret: Option<Material<String>>,
}

impl NtfyServer {
    fn headers(&self, secret: Option<&str>) -> HeaderMap {
        let mut headers = own_headers(JSON);
        let login = secret.map(|secret| match &self.user {
            Some(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{secret}"))),
            None => format!("Bearer {secret}"),
        });
        if let Some(Ok(mut value)) = login.map(HeaderValue::try_from) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }
}

pub struct NtfyChannel {
    pub wiring: Wiring,
    pub accounts: Arc<Accounts<NtfyServer>>,
}

impl_channel!(NtfyChannel);

/// A message without its topic.
pub(crate) struct NtfyDraft {
    message: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

impl Protocol for NtfyChannel {
    type Ready = NtfyDraft;

    fn prepare(&self, attempt: &Attempt) -> Result<NtfyDraft, Ended> {
        let (content, own) = content_of(KIND, &attempt.message)?;
        Ok(render::draft(&content, own))
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    async fn send(&self, attempt: &Attempt, draft: NtfyDraft) -> Result<Report, Ended> {
        let target: NtfyTarget<'_> = target_of(attempt)?;
        let account = self.accounts.choose(attempt, |_| true).await?;
        let called = self.publish(&account.settings, attempt, &target.topic, &draft).await;
        let report = called.unwrap_or_else(|ended| *ended);
        if report.outcome == Outcome::Config {
            account.settings.secret.iter().for_each(Material::forget);
        }
        Ok(account.settle(attempt, report, |_| true))
    }
}

impl NtfyChannel {
    async fn publish(
        &self,
        server: &NtfyServer,
        attempt: &Attempt,
        topic: &str,
        draft: &NtfyDraft,
    ) -> Result<Report, Ended> {
        let secret = match &server.secret {
            None => None,
            Some(secret) => {
                let known = secret.get().await;
                Some(known.map_err(|why| hidden_cause("credential_unreadable", &why))?)
            }
        };
        let secret = secret.as_deref().map(String::as_str);
        let endpoint = self.wiring.endpoint(&format!("{}/", server.endpoint))?;
        let body = render::body(topic, crate::webpush::urgency(attempt), draft);
        let headers = server.headers(secret);
        let request = |_| Request { method: Method::POST, headers, body: body.into() };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let answer = NtfyAnswer::read(&response);
        let reading = Reading {
            service: KIND.name(),
            code: answer.code,
            provider_id: answer.message_id,
            hide: &[&draft.message],
            secrets: secret.as_slice(),
            ..Reading::default()
        };
        let mut report = self.wiring.judge(&response, reading);
        report.detail = report.detail.map(|text| hide_exactly(&text, topic));
        Ok(report)
    }
}
