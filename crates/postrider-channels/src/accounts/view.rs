//! The accounts as an operator sees them, without credentials.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{ChannelKind, Timestamp};

use super::{Account, Accounts};

/// One account at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountView {
    pub name: Arc<str>,
    pub channel: ChannelKind,
    /// Its tenant; `*` for all tenants without accounts of their own.
    pub tenant: Arc<str>,
    pub priority: u16,
    pub cost: f64,
    /// The gate that holds it, and until when if that is known.
    pub held: Option<(&'static str, Option<Timestamp>)>,
    /// Attempts through it since the start, and how many of them another account took over.
    pub calls: u64,
    pub failovers: u64,
    /// Messages that the provider accepted through it since the start.
    pub sent: u64,
}

/// A channel's accounts, whatever their settings are.
pub trait AccountListing: Send + Sync {
    fn accounts(&self, now: Timestamp) -> Vec<AccountView>;

    /// Chooses an account no more until then, by an operator's order; `None` takes the order back. Does nothing if
    /// there is no such account.
    fn order_pause(&self, channel: ChannelKind, account: &str, until: Option<Timestamp>);

    /// Applies another policy of breakers to all accounts.
    fn adopt_breaker(&self, policy: BreakerPolicy);
}

impl<C: Send + Sync> AccountListing for Accounts<C> {
    fn order_pause(&self, channel: ChannelKind, account: &str, until: Option<Timestamp>) {
        let is_named = |own: &&Arc<Account<C>>| self.kind == channel && *own.name == *account;
        let own = self.iter().filter(is_named);
        own.for_each(|own| own.gates().order_pause(until));
    }

    fn adopt_breaker(&self, policy: BreakerPolicy) {
        self.iter().for_each(|account| account.gates().adopt(policy));
    }

    fn accounts(&self, now: Timestamp) -> Vec<AccountView> {
        let view = |account: &Arc<Account<C>>| AccountView {
            name: account.name.clone(),
            channel: self.kind,
            tenant: account.tenant.as_ref().map_or_else(|| "*".into(), |tenant| tenant.0.clone()),
            priority: account.priority,
            cost: account.cost,
            held: account.gates().ready(now).err().map(|held| (held.by.name(), Some(held.until))),
            calls: account.calls.load(Ordering::Relaxed),
            sent: account.sent.load(Ordering::Relaxed),
            failovers: account.failovers.load(Ordering::Relaxed),
        };
        self.all.iter().map(view).collect()
    }
}
