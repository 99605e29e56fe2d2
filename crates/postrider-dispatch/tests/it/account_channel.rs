//! A channel with accounts, each of which answers in its own way. Takes the addresses of webhooks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use postrider_core::policy::account::{AccountHold, AccountOffer};
use postrider_core::{
    Attempt, Channel, ChannelKind, ChannelTraits, Finished, Message, Outcome, Report, Target,
    TenantId,
};

use crate::fixture::WEBHOOK;

/// How an account answers.
#[derive(Debug, Clone)]
pub(crate) enum AccountBehavior {
    Answers(Outcome),
    Hangs,
}

#[derive(Default)]
pub(crate) struct AccountChannel {
    /// The accounts of each tenant, in order.
    accounts: HashMap<&'static str, Vec<&'static str>>,
    behaviors: Mutex<HashMap<&'static str, AccountBehavior>>,
    held: Mutex<HashMap<&'static str, AccountHold>>,
    /// Account and tenant of every call.
    calls: Mutex<Vec<(String, String)>>,
}

impl AccountChannel {
    pub(crate) fn new(accounts: &[(&'static str, &[&'static str])]) -> Arc<Self> {
        let accounts = accounts.iter().map(|(tenant, names)| (*tenant, names.to_vec())).collect();
        Arc::new(Self { accounts, ..Self::default() })
    }

    /// Without this, an account accepts everything.
    pub(crate) fn behave(&self, account: &'static str, behavior: AccountBehavior) {
        self.behaviors.lock().unwrap().insert(account, behavior);
    }

    pub(crate) fn hold(&self, account: &'static str, held: AccountHold) {
        self.held.lock().unwrap().insert(account, held);
    }

    /// How many calls of a tenant went through an account.
    pub(crate) fn calls(&self, account: &str, tenant: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(a, t)| a == account && t == tenant).count()
    }

    async fn call(&self, attempt: Attempt, done: &(dyn Fn(Finished) + Send + Sync)) {
        let account = attempt.account.clone().unwrap();
        let tenant = attempt.message.tenant.to_string();
        self.calls.lock().unwrap().push((account.to_string(), tenant));
        let behavior = self.behaviors.lock().unwrap().get(&*account).cloned();
        let outcome = match behavior {
            Some(AccountBehavior::Answers(outcome)) => outcome,
            Some(AccountBehavior::Hangs) => std::future::pending().await,
            None => Outcome::Accepted,
        };
        let report = Report::new(outcome);
        done(Finished { slot: attempt.slot, report, latency_ms: 1, waited_ms: 0 });
    }
}

#[async_trait::async_trait]
impl Channel for AccountChannel {
    fn kind(&self) -> ChannelKind {
        WEBHOOK
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits { has_accounts: true, ..ChannelTraits::PLAIN }
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        let held = self.held.lock().unwrap();
        let names = self.accounts.get(&*tenant.0).into_iter().flatten();
        let offer =
            |name: &&str| AccountOffer { name: (*name).into(), held: held.get(name).copied() };
        names.map(offer).collect()
    }

    /// An address that names an account (`?only=NAME`) fits no other.
    fn fits(&self, account: &str, target: &Target, _: &Message) -> bool {
        let only = target.as_json().split("?only=").nth(1);
        only.is_none_or(|only| only.starts_with(account))
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        join_all(batch.into_iter().map(|attempt| self.call(attempt, done))).await;
    }
}
