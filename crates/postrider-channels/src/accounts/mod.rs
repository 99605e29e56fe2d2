//! Provider accounts. For every attempt, a channel chooses an account ([`Accounts::choose`]), calls the provider with
//! its settings `C`, and reports the result ([`ChosenAccount::settle`]). [`postrider_core::policy::account`] decides
//! which account is chosen. A tenant with accounts uses only its own; all others share the accounts of tenant `*`.

mod checked_fields;
pub mod health;
mod material;
mod secret;
mod view;

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as Order};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::policy::account::{
    self, AccountCandidate, AccountChoice, AccountEpoch, AccountGates, AccountHold, AccountOffer,
};
use postrider_core::policy::breaker::{BreakerChange, BreakerPolicy};
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::work_share::WorkShare;
use postrider_core::{
    Attempt, ChannelKind, Clock, Gate, Outcome, Report, Scope, TenantId, Timestamp,
};

pub(crate) use checked_fields::{CheckFields, CheckedFields, needs};
pub use material::Material;
pub use secret::{SecretRef, SecretRefError};
pub use view::{AccountListing, AccountView};

use serde::de::DeserializeOwned;

use crate::Error;
use crate::address::Serves;
use crate::definition::ChannelParts;
use crate::deliver::{Ended, Wiring, misconfigured};

/// One account as it is configured.
#[derive(Debug, Clone)]
pub struct AccountConfig<C> {
    pub name: String,
    /// Its tenant; if absent, it serves all tenants without accounts of their own.
    pub tenant: Option<TenantId>,
    /// It is in another region than this server: used if no near one can be.
    pub is_far: bool,
    /// Lower is used first.
    pub priority: u16,
    pub cost: f64,
    pub rate: Option<Rate>,
    pub settings: C,
}

impl<C> AccountConfig<C> {
    /// The same account with its settings converted.
    pub fn map<D>(self, make: impl FnOnce(C) -> D) -> AccountConfig<D> {
        let Self { name, tenant, is_far, priority, cost, rate, settings } = self;
        AccountConfig { name, tenant, is_far, priority, cost, rate, settings: make(settings) }
    }
}

/// The fields of an account that only its channel knows.
pub type AccountFields = serde_json::Map<String, serde_json::Value>;

impl AccountConfig<AccountFields> {
    /// The account with the settings of its channel.
    pub fn read<C: DeserializeOwned>(&self) -> Result<AccountConfig<C>, Error> {
        let settings = parse_fields(&self.settings)
            .map_err(|source| Error::Account { name: self.name.clone(), source })?;
        Ok(self.clone().map(|_| settings))
    }
}

fn parse_fields<C: DeserializeOwned>(fields: &AccountFields) -> serde_json::Result<C> {
    serde_json::from_value(serde_json::Value::Object(fields.clone()))
}

/// Whether the fields are those of a channel whose accounts have the settings `C`.
pub(crate) fn check_fields<C: DeserializeOwned>(fields: &AccountFields) -> serde_json::Result<()> {
    parse_fields::<C>(fields).map(|_| ())
}

pub struct Account<C> {
    pub name: Arc<str>,
    tenant: Option<TenantId>,
    is_far: bool,
    priority: u16,
    cost: f64,
    pub settings: C,
    gates: Mutex<AccountGates>,
    calls: AtomicU64,
    sent: AtomicU64,
    failovers: AtomicU64,
}

pub struct Accounts<C> {
    kind: ChannelKind,
    all: Vec<Arc<Account<C>>>,
    clock: Arc<dyn Clock>,
}

impl<C> Accounts<C> {
    /// Quotas are split by `share`: each worker uses its part.
    pub fn new(
        kind: ChannelKind,
        configs: Vec<AccountConfig<C>>,
        policy: BreakerPolicy,
        clock: Arc<dyn Clock>,
        share: &Arc<WorkShare>,
    ) -> Self {
        let account = |config: AccountConfig<C>| {
            Arc::new(Account {
                name: config.name.into(),
                tenant: config.tenant,
                is_far: config.is_far,
                priority: config.priority,
                cost: config.cost,
                settings: config.settings,
                gates: Mutex::new(AccountGates::new(policy, config.rate, share.clone())),
                calls: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                failovers: AtomicU64::new(0),
            })
        };
        Self { kind, all: configs.into_iter().map(account).collect(), clock }
    }

    /// The same with the clock and the share of the wiring.
    pub(crate) fn with(
        kind: ChannelKind,
        configs: Vec<AccountConfig<C>>,
        policy: BreakerPolicy,
        wiring: &Wiring,
    ) -> Self {
        Self::new(kind, configs, policy, wiring.clock.clone(), &wiring.share)
    }

    /// The accounts of a channel, whose settings are made from the fields `F` of the configuration.
    pub(crate) fn build<F: DeserializeOwned>(
        kind: ChannelKind,
        parts: &ChannelParts,
        settings: impl Fn(F) -> C,
    ) -> Result<Arc<Self>, Error> {
        let configs = parts.read_accounts()?.into_iter();
        let configs = configs.map(|config| config.map(&settings)).collect();
        Ok(Arc::new(Self::with(kind, configs, parts.breaker, &parts.wiring)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Account<C>>> {
        self.all.iter()
    }

    /// The accounts that a tenant may use.
    pub fn of<'a>(&'a self, tenant: &'a TenantId) -> impl Iterator<Item = &'a Arc<Account<C>>> {
        let own = self.all.iter().any(|account| account.tenant.as_ref() == Some(tenant));
        let wanted = own.then_some(tenant);
        self.all.iter().filter(move |account| account.tenant.as_ref() == wanted)
    }

    /// The account that a tenant uses if none is held.
    pub fn first<'a>(&'a self, tenant: &'a TenantId) -> Option<&'a Arc<Account<C>>> {
        self.of(tenant).min_by(|a, b| a.compare(b))
    }

    /// The accounts that a tenant may use, in the order in which they are chosen.
    pub(crate) fn offers(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        let now = self.clock.now();
        let mut all: Vec<_> = self.of(tenant).collect();
        all.sort_by(|a, b| a.compare(b));
        let offer = |account: &Arc<Account<C>>| AccountOffer {
            name: account.name.clone(),
            held: account.gates().ready(now).err(),
        };
        all.into_iter().map(offer).collect()
    }

    /// The settings of an account.
    pub(crate) fn settings(&self, name: &str) -> Option<&C> {
        self.all.iter().find(|account| *account.name == *name).map(|account| &account.settings)
    }

    /// A function that tells whether a tenant has an account.
    pub(crate) fn serving(self: &Arc<Self>) -> Serves
    where
        C: Send + Sync + 'static,
    {
        let accounts = self.clone();
        Arc::new(move |tenant| accounts.of(tenant).next().is_some())
    }

    /// Chooses an account that fits the attempt, and waits for its rate limit if needed.
    pub async fn choose(
        &self,
        attempt: &Attempt,
        fits: impl Fn(&C) -> bool,
    ) -> Result<ChosenAccount<'_, C>, Ended> {
        let named = attempt.account.as_deref();
        let (chosen, at) = self.pick(&attempt.message.tenant, named, fits)?;
        let wait = at.since(self.clock.now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(chosen)
    }

    /// The named account if it fits and is not held, else the best of the others.
    fn pick(
        &self,
        tenant: &TenantId,
        named: Option<&str>,
        fits: impl Fn(&C) -> bool,
    ) -> Result<(ChosenAccount<'_, C>, Timestamp), Ended> {
        let now = self.clock.now();
        let fitting = || self.of(tenant).filter(|account| fits(&account.settings));
        let mut named = fitting().filter(|account| named == Some(&*account.name));
        let named = named.find_map(|account| Some((account, account.gates().take(now).ok()?)));
        if let Some((account, (epoch, at))) = named {
            return Ok((self.chosen(account.clone(), epoch), at));
        }
        match account::choose(&fitting().map(|a| a.candidate(now)).collect::<Vec<_>>()) {
            AccountChoice::Use(nth) => {
                let account = fitting().nth(nth).ok_or_else(|| self.nobody(tenant))?.clone();
                let taken = account.gates().take(now);
                // Another attempt may have taken the last permit since the candidates were read.
                let (epoch, at) = taken.map_err(|held| self.held(tenant, held, now))?;
                Ok((self.chosen(account, epoch), at))
            }
            AccountChoice::Wait(held) => Err(self.held(tenant, held, now)),
            AccountChoice::Nobody => Err(self.nobody(tenant)),
        }
    }

    fn chosen(&self, account: Arc<Account<C>>, epoch: AccountEpoch) -> ChosenAccount<'_, C> {
        account.calls.fetch_add(1, Order::Relaxed);
        ChosenAccount { accounts: self, account, epoch: Some(epoch) }
    }

    /// The whole tenant waits only if none of its accounts can be used.
    fn hold(&self, tenant: &TenantId, held: AccountHold, now: Timestamp) -> Outcome {
        let others = self.of(tenant).any(|account| account.gates().ready(now).is_ok());
        let scope = if others { Scope::Target } else { Scope::Credential };
        Outcome::Hold { after: held.until.since(now), scope }
    }

    fn held(&self, tenant: &TenantId, held: AccountHold, now: Timestamp) -> Ended {
        let why =
            format!("every {} account is held, the first one by: {}", self.kind, held.by.name());
        let outcome = self.hold(tenant, held, now);
        Box::new(Report::new(outcome).code("accounts_held").detail(why))
    }

    fn nobody(&self, tenant: &TenantId) -> Ended {
        let detail = format!(
            "no {} account fits this message of tenant {tenant}; add one: [accounts.NAME] with channel = \"{0}\"",
            self.kind
        );
        misconfigured("no_account", &detail)
    }
}

impl<C> Account<C> {
    fn gates(&self) -> MutexGuard<'_, AccountGates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn candidate(&self, now: Timestamp) -> AccountCandidate {
        let ready = self.gates().ready(now);
        let Self { is_far, priority, cost, .. } = *self;
        AccountCandidate { is_far, priority, cost, ready }
    }

    /// Which one is used first.
    fn compare(&self, other: &Self) -> Ordering {
        let rank = |account: &Self| (account.is_far, account.priority);
        rank(self).cmp(&rank(other)).then(self.cost.total_cmp(&other.cost))
    }

    /// Tries the account again, because its credential was replaced.
    pub fn renewed(&self) {
        self.gates().renewed();
    }
}

/// The account of one attempt. If it is dropped before [`ChosenAccount::settle`], it counts as unused.
pub struct ChosenAccount<'a, C> {
    accounts: &'a Accounts<C>,
    account: Arc<Account<C>>,
    epoch: Option<AccountEpoch>,
}

impl<C> std::ops::Deref for ChosenAccount<'_, C> {
    type Target = Account<C>;

    fn deref(&self) -> &Account<C> {
        &self.account
    }
}

impl<C> ChosenAccount<'_, C> {
    /// Counts more units against the account's rate limit.
    pub fn charge(&self, more: usize) {
        self.account.gates().charge(more, self.accounts.clock.now());
    }

    /// Reports the result to the account's gates. If the account is at fault and another one that fits is ready,
    /// the outcome becomes [`Outcome::SwitchAccount`]: the attempt is repeated at once and does not count.
    pub fn settle(
        mut self,
        attempt: &Attempt,
        mut report: Report,
        fits: impl Fn(&C) -> bool,
    ) -> Report {
        let Some(epoch) = self.epoch.take() else { return report };
        report.is_of_other_account =
            attempt.account.as_ref().is_some_and(|named| *named != self.account.name);
        if attempt.resign && report.outcome == Outcome::ResignOnce {
            report.outcome = Outcome::Config;
        }
        if report.outcome == Outcome::Accepted {
            self.account.sent.fetch_add(1, Order::Relaxed);
        }
        let now = self.accounts.clock.now_rounded_up();
        let random = random(now, &self.account.name);
        let change =
            self.account.gates().report(&report.outcome, report.status, epoch, now, random);
        self.log(change, &report);
        let tenant = &attempt.message.tenant;
        let mut others = self.accounts.of(tenant).filter(|a| fits(&a.settings));
        if account::is_the_account_s(&report.outcome)
            && others.any(|a| !Arc::ptr_eq(a, &self.account) && a.candidate(now).ready.is_ok())
        {
            self.account.failovers.fetch_add(1, Order::Relaxed);
            let detail = report.detail.take().unwrap_or_default();
            report.detail = Some(format!("account {} left out: {detail}", self.account.name));
            report.outcome = Outcome::SwitchAccount;
        }
        report
    }

    fn log(&self, change: Option<BreakerChange>, report: &Report) {
        let (channel, account) = (self.accounts.kind.name(), &*self.account.name);
        let code = report.code.as_deref().unwrap_or_default();
        match change {
            Some(BreakerChange::Opened { until }) => {
                let by = Gate::Credential.name();
                tracing::warn!(channel, account, by, %until, status = report.status, code, "account left out");
            }
            Some(BreakerChange::Closed) => {
                tracing::info!(
                    channel,
                    account,
                    by = Gate::Credential.name(),
                    "account in use again"
                );
            }
            Some(BreakerChange::Eased) | None => {}
        }
    }
}

impl<C> Drop for ChosenAccount<'_, C> {
    fn drop(&mut self) {
        if let Some(epoch) = self.epoch.take() {
            self.account.gates().hand_back(epoch, self.accounts.clock.now());
        }
    }
}

/// A number in `0.0..1.0` that differs between accounts and times, so that they are not probed at the same time.
fn random(now: Timestamp, name: &str) -> f64 {
    let mixed = name.bytes().fold(now.0 as u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    });
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
