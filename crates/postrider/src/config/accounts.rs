//! `[accounts.NAME]`: accounts at providers. The fields of all accounts are read here; each channel reads
//! those that only its own accounts have.

use postrider_channels::accounts::{AccountConfig, AccountFields};
use postrider_channels::definition::AccountGuide;
use postrider_channels::{registry, settings};
use postrider_core::policy::limiter::Rate;
use postrider_core::{ChannelKind, TenantId};
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::reference::list;
use super::sections::NetworkSection;

/// One account; a table by name, `[accounts.NAME]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountSection {
    pub channel: ChannelKind,
    /// Its tenant; `*` for every tenant that has no account of its own for this channel. It must be written: whoever
    /// may use an account is never a default.
    #[serde(default)]
    pub tenant: String,
    /// The lowest number is used first.
    #[serde(default)]
    pub priority: u16,
    /// What a message costs; decides between accounts of the same priority.
    #[serde(default)]
    pub cost: f64,
    /// Its quota in messages per second; 0 for no limit. If absent, what its provider usually grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    #[serde(default = "burst")]
    pub rate_burst: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ramp_s: Option<u32>,
    /// One of `store.regions`: servers of that region use it first. SES has a `region` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// The fields that only accounts of this channel have.
    #[serde(flatten)]
    pub settings: AccountFields,
}

fn burst() -> u32 {
    10
}

impl AccountSection {
    /// Checks all fields, also those of the channel.
    pub(super) fn validate(&self, name: &str) -> Result<(), ConfigError> {
        settings::check_rate("accounts.NAME.rate_per_s", self.rate_per_s.unwrap_or(0.0))?;
        let named = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !named {
            return Err(wrong(name, "the name is not usable: 1 to 64 letters, digits, - _ or ."));
        }
        if self.tenant.is_empty() {
            let message = "tenant is missing: name the tenant that may use it, or write tenant = \"*\" for all";
            return Err(wrong(name, message));
        }
        if !self.cost.is_finite() || self.cost < 0.0 {
            return Err(wrong(name, &format!("cost = {}: allowed is 0 or more", self.cost)));
        }
        let Some(guide) = self.guide() else {
            let with = registry::all().filter(|channel| channel.facts().accounts.is_some());
            let with: Vec<_> = with.map(|channel| channel.section().name).collect();
            let (channel, with) = (self.channel, list(&with));
            let message =
                format!("channel = \"{channel}\": allowed is {with}; others need no account");
            return Err(wrong(name, &message));
        };
        (guide.check)(&self.settings).map_err(|error| wrong(name, &error.to_string()))
    }

    /// SMTP and SMPP do not go through a proxy: an operator who has one must say that this is meant.
    pub(super) fn check_way_out(
        &self,
        name: &str,
        network: &NetworkSection,
    ) -> Result<(), ConfigError> {
        let provider = self.settings.get("provider").and_then(|value| value.as_str());
        let protocol = match (self.channel.name(), provider) {
            ("email", None | Some("smtp")) => "SMTP",
            ("sms", Some("smpp")) => "SMPP",
            _ => return Ok(()),
        };
        if network.proxy.is_none() || network.relays_without_proxy {
            return Ok(());
        }
        let message = format!(
            "{protocol} does not go through network.proxy: set network.relays_without_proxy = true to reach it \
             without the proxy, or remove one of them"
        );
        Err(wrong(name, &message))
    }

    fn guide(&self) -> Option<AccountGuide> {
        registry::definition(self.channel)?.facts().accounts
    }

    fn rate(&self) -> Option<Rate> {
        let usual = self.guide().and_then(|guide| guide.usual_rate);
        let usual_ramp_s = usual.map_or(0, |usual| usual.ramp_s);
        let ramp_s = self.rate_ramp_s.unwrap_or(usual_ramp_s);
        match self.rate_per_s {
            Some(per_s) => settings::rate(per_s, self.rate_burst, ramp_s),
            None => usual.map(|usual| Rate { ramp_s, ..usual }),
        }
    }

    /// The account as its channel reads it, on a server of a region.
    pub(crate) fn config(&self, name: &str, own: Option<&str>) -> AccountConfig<AccountFields> {
        AccountConfig {
            name: name.to_owned(),
            tenant: (self.tenant != "*").then(|| TenantId::new(&self.tenant)),
            is_far: own.is_some() && self.near.as_deref() != own,
            priority: self.priority,
            cost: self.cost,
            rate: self.rate(),
            settings: self.settings.clone(),
        }
    }
}

fn wrong(name: &str, message: &str) -> ConfigError {
    ConfigError::malformed(&format!("accounts.{name}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment};

    #[test]
    fn a_relay_beside_a_proxy_needs_a_word() {
        let parse = |more: &str, account: &str| {
            let text = format!("[network]\nproxy = \"socks5://127.0.0.1:1080\"\n{more}\n{account}");
            Config::parse(&text, "test", &Environment::empty())
        };
        let relay = "[accounts.mail]\nchannel = \"email\"\ntenant = \"*\"\nfrom = \"a@b.example\"\nhost = \"relay.example\"";
        let error = parse("", relay).unwrap_err().to_string();
        assert!(
            error.contains("accounts.mail") && error.contains("relays_without_proxy"),
            "{error}"
        );
        parse("relays_without_proxy = true", relay).unwrap();
        let api = "[accounts.mail]\nchannel = \"email\"\ntenant = \"*\"\nfrom = \"a@b.example\"\nprovider = \"sendgrid\"\ncredential = \"env:KEY\"";
        parse("", api).unwrap();
    }
    use postrider_channels::fcm::FcmAccount;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, "postrider.toml", &Environment::empty())
    }

    #[test]
    fn an_account_of_another_region_is_far() {
        let text = "[store]\nurl = \"redis://db/0\"\nregions = [\"eu\", \"us\"]\n[accounts.a]\nchannel = \"ntfy\"\n\
                    tenant = \"*\"\nnear = \"eu\"\n[accounts.b]\nchannel = \"ntfy\"\ntenant = \"*\"\n";
        let accounts = parse(text).unwrap().accounts;
        let is_far = |name: &str, own| accounts[name].config(name, own).is_far;
        assert_eq!(
            (is_far("a", Some("eu")), is_far("a", Some("us")), is_far("a", None)),
            (false, true, false)
        );
        assert!(
            is_far("b", Some("eu")) && !is_far("b", None),
            "one without a region comes after the near ones"
        );
        let wrong = parse(&text.replace("near = \"eu\"", "near = \"asia\"")).unwrap_err();
        assert!(wrong.to_string().contains("accounts.a.near = \"asia\""), "{wrong}");
    }

    #[test]
    fn an_account_has_a_channel_an_order_and_a_credential_by_reference() {
        let config = parse(
            "[accounts.main]\nchannel = \"fcm\"\ntenant = \"*\"\ncredential = \"file:/run/secrets/fcm.json\"\n\
             [accounts.spare]\nchannel = \"fcm\"\ntenant = \"acme\"\npriority = 5\ncost = 0.1\n\
             rate_per_s = 500\ncredential = \"env:FCM\"",
        );
        let accounts = config.unwrap().accounts;
        let read = |name: &str| accounts[name].config(name, None).read::<FcmAccount>().unwrap();
        let (main, spare) = (read("main"), read("spare"));
        assert_eq!((&main.tenant, main.priority), (&None, 0));
        assert_eq!(main.rate.map(|rate| rate.per_s), Some(8_000.0), "what Google grants");
        assert_eq!(spare.tenant, Some(TenantId::new("acme")));
        assert_eq!(spare.settings.credential.to_string(), "env:FCM");
        let Rate { per_s, ramp_s, .. } = spare.rate.unwrap();
        assert_eq!((per_s, ramp_s), (500.0, 60));
    }

    #[test]
    fn what_is_wrong_with_an_account_is_said_by_its_name() {
        let error = |fields: &str| {
            parse(&format!("[accounts.main]\ntenant = \"*\"\n{fields}")).unwrap_err().to_string()
        };
        let unknown = error("channel = \"fcm\"\ncredential = \"env:X\"\nprojekt = \"x\"");
        assert!(unknown.starts_with("accounts.main: unknown field `projekt`"), "{unknown}");
        let secret = error("channel = \"fcm\"\ncredential = \"hunter2\"");
        assert!(secret.contains("file:PATH") && !secret.contains("hunter2"), "{secret}");
        let kind = error("channel = \"webhook\"");
        assert!(kind.contains("allowed is fcm"), "{kind}");
        let text = "[accounts.main]\nchannel = \"fcm\"\ncredential = \"env:FCM\"";
        let ownerless = parse(text).unwrap_err().to_string();
        assert!(ownerless.contains("write tenant = \"*\" for all"), "{ownerless}");
        let missing = error("channel = \"apns\"");
        assert!(missing.contains("credential"), "{missing}");
    }
}
