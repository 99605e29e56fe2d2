//! E-mail, text messages and chat messages: their accounts, what the intake knows about them and the
//! channels that send them, made from the configuration.

use std::sync::Arc;

use postrider_channels::accounts::health::AccountHealth;
use postrider_channels::accounts::{AccountBook, AccountConfig, Accounts};
use postrider_channels::address::Serves;
use postrider_channels::chat::ChatIntake;
use postrider_channels::email::{EmailAccount, EmailIntake, EmailSettings};
use postrider_channels::sms::{SmsAccount, SmsIntake, SmsSettings};
use postrider_channels::{ChatChannel, EmailChannel, NetworkPolicy, Pool, SmsChannel, Wiring};
use postrider_core::{Channel, ChannelIntake, ChannelKind, Clock, TenantId};

use crate::config::{Config, accounts};

pub(crate) struct Mailing {
    pub(crate) email: Arc<Accounts<EmailSettings>>,
    pub(crate) sms: Arc<Accounts<SmsSettings>>,
}

impl Mailing {
    pub(crate) fn new(
        config: &Config,
        pool: &Pool,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let tls = pool.tls_without_http();
        let email: Vec<AccountConfig<EmailAccount>> =
            accounts::of_channel(&config.accounts, ChannelKind::Email)?;
        let sms: Vec<AccountConfig<SmsAccount>> =
            accounts::of_channel(&config.accounts, ChannelKind::Sms)?;
        let email = email.into_iter().map(|a| a.map(|settings| settings.settings(&tls))).collect();
        let sms = sms.into_iter().map(|a| a.map(|settings| settings.settings())).collect();
        let policy = config.breaker.policy();
        Ok(Self {
            email: Arc::new(Accounts::new(ChannelKind::Email, email, policy, clock.clone())),
            sms: Arc::new(Accounts::new(ChannelKind::Sms, sms, policy, clock.clone())),
        })
    }

    pub(crate) fn intakes(
        &self,
        config: &Config,
        policy: NetworkPolicy,
    ) -> Vec<Arc<dyn ChannelIntake>> {
        let international = self.email.iter().any(|a| a.settings.carrier.is_international());
        vec![
            Arc::new(EmailIntake::new(policy, serves(&self.email), international)),
            Arc::new(SmsIntake::new(serves(&self.sms))),
            Arc::new(ChatIntake::new(policy, config.chat.hosts.clone().into())),
        ]
    }

    pub(crate) fn books(&self) -> Vec<Arc<dyn AccountBook>> {
        vec![self.email.clone(), self.sms.clone()]
    }

    pub(crate) fn health(&self) -> Vec<Arc<dyn AccountHealth>> {
        vec![self.email.clone(), self.sms.clone()]
    }

    pub(crate) fn channels(
        &self,
        config: &Config,
        wiring: impl Fn(u64) -> Wiring,
    ) -> Vec<Arc<dyn Channel>> {
        let (email, sms, chat) = (&config.email, &config.sms, &config.chat);
        vec![
            Arc::new(
                EmailChannel::new(wiring(email.timeout_s), self.email.clone())
                    .reputation(email.reputation()),
            ),
            Arc::new(SmsChannel::new(wiring(sms.timeout_s), self.sms.clone())),
            Arc::new(ChatChannel::new(wiring(chat.timeout_s), chat.hosts.clone().into())),
        ]
    }
}

fn serves<C: Send + Sync + 'static>(accounts: &Arc<Accounts<C>>) -> Serves {
    let accounts = accounts.clone();
    Arc::new(move |tenant: &TenantId| accounts.serves(tenant))
}
