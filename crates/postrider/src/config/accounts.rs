//! `[accounts.NAME]`: accounts at providers. What all of them have is read here; what one channel's
//! accounts need is read by a settings type of that channel, listed in [`Account::validate`].

use std::collections::BTreeMap;

use postrider_channels::accounts::AccountConfig;
use postrider_core::policy::limiter::{self, Rate};
use postrider_core::{ChannelKind, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::ConfigError;
use super::sections::{check_rate, rate};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Account {
    pub channel: ChannelKind,
    /// Whose it is; "*" for every tenant that has none of its own for this channel.
    #[serde(default = "everybody")]
    pub tenant: String,
    /// Lower is used first.
    #[serde(default)]
    pub priority: u16,
    /// What a message costs; decides between accounts of the same priority.
    #[serde(default)]
    pub cost: f64,
    /// The account's quota in messages per second; 0 for none; where it is not named, what its
    /// provider usually grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    #[serde(default = "burst")]
    pub rate_burst: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ramp_s: Option<u32>,
    /// What only this channel's accounts have.
    #[serde(flatten)]
    pub settings: Table,
}

fn everybody() -> String {
    "*".to_owned()
}

fn burst() -> u32 {
    10
}

impl Account {
    /// Whether the settings are those of the account's channel.
    pub(super) fn validate(&self, name: &str) -> Result<(), ConfigError> {
        check_rate("accounts.NAME.rate_per_s", self.rate_per_s.unwrap_or(0.0))?;
        let named = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !named {
            return Err(wrong(name, "the name is not usable: 1 to 64 letters, digits, - _ or ."));
        }
        if !self.cost.is_finite() || self.cost < 0.0 {
            return Err(wrong(name, &format!("cost = {}: allowed is 0 or more", self.cost)));
        }
        match self.channel {
            ChannelKind::Fcm => self.check::<postrider_channels::fcm::FcmAccount>(name),
            ChannelKind::Apns => self.check::<postrider_channels::apns::ApnsAccount>(name),
            ChannelKind::Email => self.check::<postrider_channels::email::EmailAccount>(name),
            ChannelKind::Sms => self.check::<postrider_channels::sms::SmsAccount>(name),
            other => Err(wrong(
                name,
                &format!(
                    "channel = \"{other}\": allowed is fcm, apns, email or sms; others need no account"
                ),
            )),
        }
    }

    /// How long a mail relay may take over the end of a mail.
    pub(super) fn final_dot_timeout_s(&self) -> Option<u64> {
        let own = self.settings.get("final_dot_timeout_s").and_then(toml::Value::as_integer);
        let own = own.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(60);
        (self.channel == ChannelKind::Email).then_some(own)
    }

    fn rate(&self) -> Option<Rate> {
        let usual = limiter::usual(self.channel);
        let usual_ramp_s = usual.map_or(0, |usual| usual.ramp_s);
        let ramp_s = self.rate_ramp_s.unwrap_or(usual_ramp_s);
        match self.rate_per_s {
            Some(per_s) => rate(per_s, self.rate_burst, ramp_s),
            None => usual.map(|usual| Rate { ramp_s, ..usual }),
        }
    }

    fn check<C: DeserializeOwned>(&self, name: &str) -> Result<(), ConfigError> {
        self.read::<C>(name).map(|_| ())
    }

    fn read<C: DeserializeOwned>(&self, name: &str) -> Result<AccountConfig<C>, ConfigError> {
        let settings = self.settings.clone().try_into();
        Ok(AccountConfig {
            name: name.to_owned(),
            tenant: (self.tenant != "*").then(|| TenantId::new(&self.tenant)),
            priority: self.priority,
            cost: self.cost,
            rate: self.rate(),
            settings: settings.map_err(|e| wrong(name, e.message()))?,
        })
    }
}

fn wrong(name: &str, message: &str) -> ConfigError {
    ConfigError::Malformed { origin: format!("accounts.{name}"), message: message.to_owned() }
}

/// The accounts of one channel with its own settings.
pub(crate) fn of_channel<C: DeserializeOwned>(
    accounts: &BTreeMap<String, Account>,
    kind: ChannelKind,
) -> Result<Vec<AccountConfig<C>>, ConfigError> {
    let ours = accounts.iter().filter(|(_, account)| account.channel == kind);
    ours.map(|(name, account)| account.read(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment};

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, "postrider.toml", &Environment::empty())
    }

    #[test]
    fn an_account_has_a_channel_an_order_and_a_credential_by_reference() {
        let config = parse(
            "[accounts.main]\nchannel = \"fcm\"\ncredential = \"file:/run/secrets/fcm.json\"\n\
             [accounts.spare]\nchannel = \"fcm\"\ntenant = \"acme\"\npriority = 5\ncost = 0.1\n\
             rate_per_s = 500\ncredential = \"env:FCM\"",
        );
        let accounts: Vec<AccountConfig<postrider_channels::fcm::FcmAccount>> =
            of_channel(&config.unwrap().accounts, ChannelKind::Fcm).unwrap();
        let [main, spare] = accounts.as_slice() else { panic!("{accounts:?}") };
        assert_eq!((&main.tenant, main.priority), (&None, 0));
        assert_eq!(main.rate, limiter::usual(ChannelKind::Fcm), "what Google grants");
        assert_eq!(spare.tenant, Some(TenantId::new("acme")));
        assert_eq!(spare.settings.credential.to_string(), "env:FCM");
        let Rate { per_s, ramp_s, .. } = spare.rate.unwrap();
        assert_eq!((per_s, ramp_s), (500.0, 60));
    }

    #[test]
    fn what_is_wrong_with_an_account_is_said_by_its_name() {
        let error =
            |fields: &str| parse(&format!("[accounts.main]\n{fields}")).unwrap_err().to_string();
        let unknown = error("channel = \"fcm\"\ncredential = \"env:X\"\nprojekt = \"x\"");
        assert!(unknown.starts_with("accounts.main: unknown field `projekt`"), "{unknown}");
        let secret = error("channel = \"fcm\"\ncredential = \"hunter2\"");
        assert!(secret.contains("file:PATH") && !secret.contains("hunter2"), "{secret}");
        let kind = error("channel = \"webhook\"");
        assert!(kind.contains("allowed is fcm"), "{kind}");
        let missing = error("channel = \"apns\"");
        assert!(missing.contains("credential"), "{missing}");
    }
}
