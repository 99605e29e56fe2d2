//! Firebase Cloud Messaging over HTTP v1: one message per request, with the token of a service account. Does not use
//! the legacy protocol or `/batch`, and subscribes no device to topics.

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

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, Method};
use postrider_core::policy::account::AccountOffer;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, Message, Outcome, Report, Target, TenantId,
};
use serde_json::{Map, Value};

pub use account::FcmAccount;
pub use content::FcmContent;
pub use intake::FcmIntake;
pub use settings::FcmSection;
pub use target::{FcmDevice, FcmTarget};

use crate::accounts::{Account, AccountConfig, Accounts, Material};
use crate::deliver::{
    Ended, Protocol, Reading, Wiring, bad_content, content_of, impl_channel, unreadable_credential,
};
use crate::pool::{JSON, Request, own_headers};
use crate::target::target_of;
use oauth::{FcmToken, FcmTokens};
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

    /// Whether it is the wanted project, as far as both are known.
    fn serves(&self, wanted: Option<&Arc<str>>) -> bool {
        let name = self.name();
        name.is_none() || wanted.is_none() || name.as_ref() == wanted
    }

    /// Where messages of the project are sent to.
    fn url(&self, service: &ServiceAccount) -> String {
        let name = self.settings.project.as_deref().unwrap_or(&service.project);
        let base = self.settings.endpoint.trim_end_matches('/');
        format!("{base}/v1/projects/{name}/messages:send")
    }
}

fn headers(token: &FcmToken) -> HeaderMap {
    let mut headers = own_headers(JSON);
    headers.insert(AUTHORIZATION, token.authorization.clone());
    headers
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
        let accounts = Accounts::with(KIND, accounts, policy, &wiring);
        Self { wiring, accounts: Arc::new(accounts) }
    }

    pub fn accounts(&self) -> &Arc<Accounts<FcmProject>> {
        &self.accounts
    }

    /// Reads every credential, because it names the project. The watch and `doctor` report one that cannot be read; the
    /// next attempt reads it again.
    pub async fn load(&self) {
        for account in self.accounts.iter() {
            let _ = account.settings.credential.get().await;
        }
    }

    /// The project of a device: the named one, or else that of the tenant's first account.
    fn project_of(&self, tenant: &TenantId, named: Option<&str>) -> Option<Arc<str>> {
        named.map(Into::into).or_else(|| self.accounts.first(tenant)?.settings.name())
    }
}

impl_channel!(FcmChannel);

impl Protocol for FcmChannel {
    type Ready = Map<String, Value>;

    fn prepare(&self, attempt: &Attempt) -> Result<Self::Ready, Ended> {
        let (content, own) = content_of(KIND, &attempt.message)?;
        render::draft(&content, &own).map_err(bad_content)
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    fn fits(&self, account: &str, target: &Target, message: &Message) -> bool {
        let target = target.read::<FcmTarget<'_>>().ok();
        let wanted = target.and_then(|t| self.project_of(&message.tenant, t.project.as_deref()));
        self.accounts.settings(account).is_some_and(|project| project.serves(wanted.as_ref()))
    }

    async fn send(&self, attempt: &Attempt, draft: Self::Ready) -> Result<Report, Ended> {
        let target: FcmTarget<'_> = target_of(attempt)?;
        let wanted = self.project_of(&attempt.message.tenant, target.project.as_deref());
        let fits = |project: &FcmProject| project.serves(wanted.as_ref());
        let chosen = self.accounts.choose(attempt, fits).await?;
        let called = self.call(&chosen, attempt, &target.device, draft).await;
        let report = called.unwrap_or_else(|ended| *ended);
        if report.outcome == Outcome::Config {
            // The next attempt may find a new key.
            chosen.settings.credential.forget();
        }
        Ok(chosen.settle(attempt, report, fits))
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
        let service = project.credential.get().await;
        let service = service.map_err(|why| unreadable_credential(&account.name, &why))?;
        let token = project.tokens.get(&service, &self.wiring, attempt.resign).await?;
        let endpoint = self.wiring.endpoint(&project.url(&service))?;
        let request = |now| Request {
            method: Method::POST,
            headers: headers(&token),
            body: render::finish(draft, device, attempt, now).into(),
        };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let reading = Reading {
            service: "fcm",
            code: answer::code(&response),
            token_age: Some(self.wiring.clock.now().since(token.given_at)),
            provider_id: answer::name(&response),
            hide: &[device.name()],
            ..Reading::default()
        };
        Ok(self.wiring.judge(&response, reading))
    }
}
