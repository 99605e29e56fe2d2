//! Firebase Cloud Messaging over HTTP v1: one message per request, sent with a service account's token.
//!
//! Speaks neither the legacy protocol nor `/batch`, subscribes nobody to topics, and never deletes a
//! token on its own: what an answer means is in `answers.toml`.

mod account;
mod answer;
mod check;
mod content;
mod intake;
mod oauth;
mod probe;
pub(crate) mod render;
mod service_account;
mod settings;
mod target;

use std::sync::Arc;

use ::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method};
use postrider_core::model::content::Content;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, TenantId};
use serde_json::{Map, Value};

pub use account::FcmAccount;
pub use content::FcmContent;
pub use intake::FcmIntake;
pub use settings::FcmSection;
pub use target::{FcmDevice, FcmTarget};

use crate::accounts::{Account, AccountConfig, Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, bad_content, impl_channel, misconfigured};
use crate::pool::Request;
use crate::target::target_of;
use oauth::FcmTokens;
use service_account::ServiceAccount;

pub const KIND: ChannelKind = ChannelKind::new("fcm");
pub const TRAITS: ChannelTraits = ChannelTraits { has_accounts: true, ..ChannelTraits::PLAIN };

/// A project that can be sent to.
pub struct FcmProject {
    settings: FcmAccount,
    credential: Material<ServiceAccount>,
    tokens: Arc<FcmTokens>,
}

impl FcmProject {
    fn new(settings: FcmAccount) -> Self {
        let credential = Material::new(settings.credential.clone(), ServiceAccount::parse);
        Self { settings, credential, tokens: Arc::default() }
    }

    /// The project's name: as configured, else as its service account says, once that was read.
    fn name(&self) -> Option<Arc<str>> {
        match &self.settings.project {
            Some(name) => Some(name.as_str().into()),
            None => self.credential.kept().map(|account| (&*account.project).into()),
        }
    }
}

pub struct FcmChannel {
    wiring: Wiring,
    accounts: Arc<Accounts<FcmProject>>,
}

impl FcmChannel {
    pub fn new(
        wiring: Wiring,
        accounts: Vec<AccountConfig<FcmAccount>>,
        policy: BreakerPolicy,
    ) -> Self {
        let accounts = accounts.into_iter().map(|config| config.map(FcmProject::new)).collect();
        let accounts = Accounts::new(KIND, accounts, policy, wiring.clock.clone());
        Self { wiring, accounts: Arc::new(accounts) }
    }

    pub fn accounts(&self) -> &Arc<Accounts<FcmProject>> {
        &self.accounts
    }

    /// Reads every credential, so that projects are known by name. The watch and `doctor` report one that cannot
    /// be read; it is tried again when it is needed.
    pub async fn load(&self) {
        for account in self.accounts.iter() {
            let _ = account.settings.credential.get().await;
        }
    }

    /// A device belongs to one project. Where nobody says which, it is the tenant's first.
    fn project_of(&self, tenant: &TenantId, named: Option<&str>) -> Option<Arc<str>> {
        named.map(Into::into).or_else(|| self.accounts.first(tenant)?.settings.name())
    }
}

impl_channel!(FcmChannel);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl Protocol for FcmChannel {
    type Ready = Map<String, Value>;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<Self::Ready, Ended>> {
        let draft = |attempt: &Attempt| {
            let content = Content::parse(&attempt.message.content).map_err(bad_content)?;
            render::draft(&content).map_err(bad_content)
        };
        attempts.iter().map(draft).collect()
    }

    async fn send(&self, attempt: &Attempt, draft: Self::Ready) -> Report {
        let target: FcmTarget<'_> = match target_of(attempt) {
            Ok(target) => target,
            Err(ended) => return *ended,
        };
        let wanted = self.project_of(&attempt.message.tenant, target.project.as_deref());
        let fits = |project: &FcmProject| {
            let (name, wanted) = (project.name(), wanted.as_ref());
            name.is_none() || wanted.is_none() || name.as_ref() == wanted
        };
        let chosen = match self.accounts.choose(attempt, fits).await {
            Ok(chosen) => chosen,
            Err(held) => return *held,
        };
        let report = match self.call(&chosen, attempt, &target.device, draft).await {
            Ok(report) => report,
            Err(ended) => *ended,
        };
        if report.outcome == Outcome::Config {
            // A new key may lie there by the time somebody tries again.
            chosen.settings.credential.forget();
        }
        chosen.settle(attempt, report, fits)
    }
}

impl FcmChannel {
    async fn call(
        &self,
        account: &Account<FcmProject>,
        attempt: &Attempt,
        device: &FcmDevice<'_>,
        draft: Map<String, Value>,
    ) -> Result<Report, Ended> {
        let project = &account.settings;
        let service = project.credential.get().await.map_err(|why| {
            tracing::error!(account = &*account.name, why, "no credential");
            let detail = format!("the credential of account {} cannot be used", account.name);
            misconfigured("credential_unreadable", &detail)
        })?;
        let token = project.tokens.get(&service, &self.wiring, attempt.resign).await?;
        let name = project.settings.project.as_deref().unwrap_or(&service.project);
        let base = project.settings.endpoint.trim_end_matches('/');
        let url = format!("{base}/v1/projects/{name}/messages:send");
        let endpoint = self.wiring.endpoint(&url)?;
        let request = |now| {
            let mut headers = HeaderMap::with_capacity(4);
            headers.insert(AUTHORIZATION, token.authorization.clone());
            headers.insert(CONTENT_TYPE, JSON);
            headers.insert(USER_AGENT, crate::webpush::AGENT);
            let body = render::finish(draft, device, attempt, now).into();
            Request { method: Method::POST, headers, body }
        };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let reading = Reading {
            service: "fcm",
            code: answer::code(&response),
            token_age: Some(self.wiring.clock.now().since(token.given_at)),
            retry_after: None,
            provider_id: answer::name(&response),
            hide: &[device.name()],
        };
        Ok(self.wiring.judge(&response, reading))
    }
}
