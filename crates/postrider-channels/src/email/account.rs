//! An e-mail account as it is written in the configuration. It is checked when it is read, and converted to
//! [`EmailSettings`].

use std::sync::Arc;
use std::time::Duration;

use postrider_core::FieldError;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::carrier::{Carrier, DELIVERY, DkimSettings, EmailSettings};
use super::dkim::DkimKey;
use super::intake::{check_line, check_unsubscribe, normalise};
use super::sendgrid::SendGrid;
use super::ses::Ses;
use super::smtp::{Relay, RelayConfig, SmtpTls};
use crate::accounts::{CheckFields, CheckedFields, Material, SecretRef, needs};
use crate::address::NetworkPolicy;

/// The fields of `[accounts.NAME]` with `channel = "email"` that other accounts do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmailAccount(pub(super) CheckedFields<EmailAccountFields>);

/// The service that sends the mails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmailProvider {
    #[default]
    Smtp,
    Ses,
    SendGrid,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EmailAccountFields {
    pub(super) provider: EmailProvider,
    /// The sender's address; its domain should be the DKIM domain.
    pub(super) from: String,
    pub(super) from_name: Option<String>,
    pub(super) reply_to: Option<String>,
    /// Where bounces go; `{delivery}` stands for the delivery's id. The sender's address if absent or empty.
    pub(super) return_path: Option<String>,
    /// One-click unsubscribing for mails without their own addresses; `{delivery}` as above.
    pub(super) unsubscribe_url: Option<String>,
    pub(super) unsubscribe_mailto: Option<String>,
    pub(super) feedback_id: Option<String>,
    /// Every key signs every mail.
    pub(super) dkim: Vec<DkimKeyFields>,
    /// smtp: the relay.
    pub(super) host: Option<String>,
    /// smtp: 465 for `implicit`, 587 for `starttls`, else 25.
    pub(super) port: Option<u16>,
    pub(super) tls: SmtpTls,
    pub(super) user: Option<String>,
    /// smtp: the credential is an OAuth access token.
    pub(super) oauth: bool,
    pub(super) ehlo: Option<String>,
    /// smtp: the most connections at a time.
    pub(super) connections: Option<usize>,
    /// smtp: the most mails per connection.
    pub(super) mails_per_connection: Option<u32>,
    /// smtp: how long the relay may take to accept a mail after its end; at least 60.
    pub(super) final_dot_timeout_s: Option<u64>,
    /// smtp: the password; ses: the secret access key; sendgrid: the API key.
    pub(super) credential: Option<SecretRef>,
    /// ses
    pub(super) region: Option<String>,
    pub(super) key_id: Option<String>,
    pub(super) session_token: Option<SecretRef>,
    pub(super) configuration_set: Option<String>,
    /// ses and sendgrid: another address of the API, for tests and proxies.
    pub(super) endpoint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DkimKeyFields {
    pub(super) selector: String,
    /// A PEM file with an RSA or Ed25519 private key.
    pub(super) key: SecretRef,
    /// The sender's domain if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) domain: Option<String>,
}

impl CheckFields for EmailAccountFields {
    fn check(&self) -> Result<(), FieldError> {
        self.check_addresses()?;
        match self.provider {
            EmailProvider::Smtp => {
                needs("host", self.host.is_none(), "the relay's name")?;
                let only_one = self.user.is_some() != self.credential.is_some();
                needs("user and credential", only_one, "both, or neither")?;
                let too_short = self.final_dot_timeout_s.is_some_and(|seconds| seconds < 60);
                needs("final_dot_timeout_s", too_short, "60 or more")
            }
            EmailProvider::Ses => {
                needs("region", self.region.is_none(), "a region such as eu-central-1")?;
                needs("key_id", self.key_id.is_none(), "an access key id")?;
                let allowed = "a reference to the secret access key";
                needs("credential", self.credential.is_none(), allowed)
            }
            EmailProvider::SendGrid => {
                needs("credential", self.credential.is_none(), "a reference to the API key")
            }
        }
    }
}

impl EmailAccountFields {
    fn check_addresses(&self) -> Result<(), FieldError> {
        let stamped = |text: &str| text.replace(DELIVERY, "dlv_00000000000000000000000000");
        for (field, address) in [
            ("from", Some(&self.from)),
            ("reply_to", self.reply_to.as_ref()),
            ("return_path", self.return_path.as_ref().filter(|path| !path.is_empty())),
            ("unsubscribe_mailto", self.unsubscribe_mailto.as_ref()),
        ] {
            let wrong = address.and_then(|address| normalise(&stamped(address), true).err());
            if let Some(found) = wrong {
                return Err(FieldError::new(field, found, "an address such as news@example.org"));
            }
        }
        for (field, text) in [("from_name", &self.from_name), ("feedback_id", &self.feedback_id)] {
            text.as_ref().map_or(Ok(()), |text| check_line(field, text, 200))?;
        }
        let any_host = NetworkPolicy { allow_private_targets: true, allow_plain_http: false };
        let url = self.unsubscribe_url.as_deref().map(stamped);
        url.map_or(Ok(()), |url| check_unsubscribe("unsubscribe_url", &url, any_host))
    }
}

impl EmailAccount {
    /// `tls` is for relays; see [`crate::Pool::tls_without_http`].
    pub fn settings(&self, tls: &Arc<ClientConfig>) -> EmailSettings {
        let fields = &self.0;
        let dkim = |dkim: &DkimKeyFields| DkimSettings {
            domain: dkim.domain.as_deref().unwrap_or(domain_of(&fields.from)).to_ascii_lowercase(),
            selector: dkim.selector.clone(),
            key: Material::new(dkim.key.clone(), |pem| {
                DkimKey::from_pem(pem).map_err(|error| error.to_string())
            }),
        };
        EmailSettings {
            dkim: fields.dkim.iter().map(dkim).collect(),
            carrier: fields.carrier(tls),
            account: self.clone(),
        }
    }
}

impl EmailAccountFields {
    fn carrier(&self, tls: &Arc<ClientConfig>) -> Carrier {
        let own = self.endpoint.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        let endpoint = |default: String| own.unwrap_or(default);
        let region = self.region.clone().unwrap_or_default();
        match (self.provider, &self.credential) {
            (EmailProvider::Ses, Some(credential)) => Carrier::Ses(Box::new(Ses {
                endpoint: endpoint(format!("https://email.{region}.amazonaws.com")),
                region,
                key_id: self.key_id.clone().unwrap_or_default(),
                secret: Material::text(credential),
                session_token: self.session_token.as_ref().map(Material::text),
                configuration_set: self.configuration_set.clone(),
            })),
            (EmailProvider::SendGrid, Some(credential)) => Carrier::SendGrid(Box::new(SendGrid {
                endpoint: endpoint("https://api.sendgrid.com".to_owned()),
                key: Material::text(credential),
            })),
            (_, credential) => {
                let secret = credential.as_ref().map(Material::text);
                Carrier::Smtp(Relay::new(self.relay(), secret, tls.clone()))
            }
        }
    }

    fn relay(&self) -> RelayConfig {
        let port = self.port.unwrap_or(match self.tls {
            SmtpTls::Implicit => 465,
            SmtpTls::StartTls => 587,
            SmtpTls::Opportunistic | SmtpTls::None => 25,
        });
        let mut relay = RelayConfig::new(self.host.as_deref().unwrap_or_default(), port, self.tls);
        relay.user = self.user.clone().unwrap_or_default();
        relay.oauth = self.oauth;
        relay.ehlo = self.ehlo.clone().unwrap_or_default();
        relay.connections_max = self.connections.unwrap_or(relay.connections_max).clamp(1, 256);
        relay.mails_per_connection_max =
            self.mails_per_connection.unwrap_or(relay.mails_per_connection_max).max(1);
        if let Some(seconds) = self.final_dot_timeout_s {
            relay.final_dot_timeout = Duration::from_secs(seconds);
        }
        relay
    }
}

pub(super) fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<EmailAccount, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn an_account_says_what_it_lacks() {
        for (json, says) in [
            (r#"{"from":"a@b.example"}"#, "host: found nothing"),
            (r#"{"from":"nobody","host":"mx"}"#, "from: found no @"),
            (r#"{"from":"a@b.example","host":"mx","user":"u"}"#, "user and credential"),
            (r#"{"from":"a@b.example","provider":"ses"}"#, "region: found nothing"),
            (r#"{"from":"a@b.example","provider":"sendgrid"}"#, "credential: found nothing"),
            (r#"{"from":"a@b.example","host":"mx","from_name":"x\r\ny"}"#, "from_name"),
            (r#"{"from":"a@b.example","host":"mx","final_dot_timeout_s":5}"#, "60 or more"),
            (r#"{"from":"a@b.example","hosst":"mx"}"#, "unknown field `hosst`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_port_follows_from_how_the_relay_is_spoken_to() {
        for (tls, port) in [("implicit", 465), ("starttls", 587), ("opportunistic", 25)] {
            let json = format!(r#"{{"from":"a@b.example","host":"mx","tls":"{tls}"}}"#);
            assert_eq!(read(&json).unwrap().0.relay().port, port);
        }
    }
}
