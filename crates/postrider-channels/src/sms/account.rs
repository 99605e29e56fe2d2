//! An SMS account as it is written in the configuration. It is checked when it is read, and converted to
//! [`SmsSettings`].

use std::collections::BTreeMap;

use ::http::HeaderName;
use postrider_core::FieldError;
use serde::{Deserialize, Serialize};

use super::SmsSettings;
use super::form::{FormFormat, GatewayAuth, GatewayForm};
use super::reading::AnswerShape;
use crate::accounts::{CheckFields, CheckedFields, Material, SecretRef, needs};

/// The fields of `[accounts.NAME]` with `channel = "sms"` that other accounts do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmsAccount(CheckedFields<SmsAccountFields>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmsProvider {
    #[default]
    Twilio,
    /// Any gateway that accepts a form or JSON over HTTP.
    Http,
    /// A message centre; in builds with the feature `smpp`.
    Smpp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SmsAccountFields {
    pub(super) provider: SmsProvider,
    /// A number, a short code or a name; for Twilio also a messaging service (`MG…`).
    pub(super) from: String,
    /// twilio: the password, or the secret of the API key; http: for `auth`, or for `{secret}` in a field.
    pub(super) credential: Option<SecretRef>,
    /// twilio: `AC…`
    pub(super) account_sid: Option<String>,
    /// twilio: the API key `SK…`, the account itself if absent; http: the user of `auth = "basic"`.
    pub(super) user: Option<String>,
    /// twilio: where it reports instead of here.
    pub(super) status_callback: Option<String>,
    /// twilio: the account's auth token, with which it signs what it reports.
    pub(super) callback_secret: Option<SecretRef>,
    /// twilio: another address of the API, for tests and proxies.
    pub(super) endpoint: Option<String>,
    /// http: the gateway's URL.
    pub(super) url: Option<String>,
    /// http: its name in `[[classify]]`, after `sms.`; `http` if absent.
    pub(super) service: Option<String>,
    pub(super) format: FormFormat,
    /// http: names and values, with `{to}`, `{from}`, `{text}`, `{validity_s}`, `{delivery}`, `{secret}`.
    pub(super) fields: BTreeMap<String, String>,
    /// http: `none`, `basic`, `bearer` or `header:NAME`.
    pub(super) auth: Option<String>,
    /// smpp: the message centre; `user` is the system id, `credential` the password.
    pub(super) host: Option<String>,
    /// smpp: 2775 if absent, 3550 with `tls`.
    pub(super) port: Option<u16>,
    /// smpp: encrypted, with the certificate of `host`.
    pub(super) tls: bool,
    pub(super) system_type: Option<String>,
    /// smpp: the most messages in flight; 10 if absent.
    pub(super) window: Option<usize>,
    /// http: JSON pointers into the answer.
    pub(super) id_at: Option<String>,
    pub(super) code_at: Option<String>,
    pub(super) ok_at: Option<String>,
    pub(super) ok_values: Vec<String>,
}

impl CheckFields for SmsAccountFields {
    fn check(&self) -> Result<(), FieldError> {
        if self.callback_secret.is_some() && self.provider != SmsProvider::Twilio {
            let allowed = "nothing: only Twilio reports here";
            return Err(FieldError::new("callback_secret", "a reference", allowed));
        }
        match self.provider {
            SmsProvider::Twilio => {
                needs("from", self.from.is_empty(), "a number, a short code, a name or MG…")?;
                needs("account_sid", self.account_sid.is_none(), "the account's AC…")?;
                needs("credential", self.credential.is_none(), "a reference to the secret")
            }
            SmsProvider::Http => {
                needs("url", self.url.is_none(), "where the gateway is")?;
                let says = |what: &str| self.fields.values().any(|value| value.contains(what));
                needs("fields", !says("{to}"), "a field with {to} in it")?;
                needs("fields", !says("{text}"), "a field with {text} in it")?;
                if let Some(name) = self.form().unknown_placeholder() {
                    let allowed = "{to}, {from}, {text}, {validity_s}, {delivery} and {secret}";
                    return Err(FieldError::new("fields", format!("{{{name}}}"), allowed));
                }
                self.gateway_auth().map(|_| ())
            }
            SmsProvider::Smpp if cfg!(not(feature = "smpp")) => Err(FieldError::new(
                "provider",
                "smpp, which this build does not have",
                "twilio or http; or a build with --features smpp",
            )),
            SmsProvider::Smpp => {
                needs("from", self.from.is_empty(), "a number, a short code or a name")?;
                needs("host", self.host.is_none(), "the message centre's name")?;
                needs("user", self.user.is_none(), "the system id")?;
                needs("credential", self.credential.is_none(), "a reference to the password")
            }
        }
    }
}

impl SmsAccountFields {
    /// Where Twilio reports what became of a message.
    fn callback(&self) -> Option<&str> {
        let own = self.callback_secret.as_ref().map(|_| "{callback}");
        self.status_callback.as_deref().or(own)
    }

    fn gateway_auth(&self) -> Result<GatewayAuth, FieldError> {
        let user = self.user.clone().unwrap_or_default();
        let auth = self.auth.as_deref().unwrap_or("none");
        let header = auth.strip_prefix("header:").map(|n| HeaderName::from_bytes(n.as_bytes()));
        Ok(match (auth, header) {
            ("none", _) => GatewayAuth::None,
            ("basic", _) => GatewayAuth::Basic(user),
            ("bearer", _) => GatewayAuth::Bearer,
            (_, Some(Ok(name))) => GatewayAuth::Header(name),
            _ => {
                let allowed = "none, basic, bearer or header:NAME";
                return Err(FieldError::new("auth", "another text", allowed));
            }
        })
    }

    fn form(&self) -> GatewayForm {
        let fields = self.fields.iter().map(|(name, value)| (name.clone(), value.clone()));
        GatewayForm { format: self.format, fields: fields.collect() }
    }
}

impl SmsAccount {
    pub fn settings(&self) -> SmsSettings {
        let fields = &self.0;
        let secret = fields.credential.as_ref().map(Material::text);
        let settings = SmsSettings { from: fields.from.clone(), ..SmsSettings::default() };
        match fields.provider {
            SmsProvider::Twilio => {
                let account = fields.account_sid.clone().unwrap_or_default();
                let endpoint = fields.endpoint.as_deref().unwrap_or("https://api.twilio.com");
                let endpoint = endpoint.trim_end_matches('/');
                SmsSettings {
                    service: "sms.twilio".to_owned(),
                    url: format!("{endpoint}/2010-04-01/Accounts/{account}/Messages.json"),
                    form: GatewayForm::twilio(&fields.from, fields.callback()),
                    callback_secret: fields.callback_secret.as_ref().map(Material::text),
                    auth: GatewayAuth::Basic(fields.user.clone().unwrap_or(account)),
                    secret,
                    answer: AnswerShape::twilio(),
                    ..settings
                }
            }
            SmsProvider::Smpp => SmsSettings {
                service: "sms.smpp".to_owned(),
                #[cfg(feature = "smpp")]
                smsc: secret.map(|password| fields.smsc(password)),
                ..settings
            },
            SmsProvider::Http => SmsSettings {
                service: format!("sms.{}", fields.service.as_deref().unwrap_or("http")),
                url: fields.url.clone().unwrap_or_default(),
                form: fields.form(),
                auth: fields.gateway_auth().unwrap_or_default(),
                secret,
                answer: AnswerShape {
                    id_at: fields.id_at.clone(),
                    code_at: fields.code_at.clone(),
                    ok_at: fields.ok_at.clone(),
                    ok_values: fields.ok_values.clone(),
                },
                ..settings
            },
        }
    }
}

#[cfg(feature = "smpp")]
impl SmsAccountFields {
    fn smsc(&self, password: Material<String>) -> super::smpp::Smsc {
        let config = super::smpp::SmscConfig {
            host: self.host.clone().unwrap_or_default(),
            port: self.port.unwrap_or(if self.tls { 3550 } else { 2775 }),
            tls: self.tls,
            system_id: self.user.clone().unwrap_or_default(),
            system_type: self.system_type.clone().unwrap_or_default(),
            window: self.window.unwrap_or(10),
        };
        let log = |receipt: super::smpp::SmppReceipt| {
            tracing::info!(stat = receipt.stat, err = receipt.err, "receipt of a text message");
        };
        super::smpp::Smsc::new(config, password, std::sync::Arc::new(log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<SmsAccount, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn an_account_says_what_it_lacks() {
        for (json, says) in [
            (r#"{"from":"+15550100"}"#, "account_sid: found nothing"),
            (r#"{"account_sid":"AC1","credential":"env:X"}"#, "from: found nothing"),
            (r#"{"provider":"http","url":"https://a.example","fields":{"a":"{to}"}}"#, "{text}"),
            (
                r#"{"provider":"http","url":"https://a.example","fields":{"a":"{to}{text}{txt}"}}"#,
                "found {txt}",
            ),
            (
                r#"{"provider":"http","url":"https://a.example","fields":{"a":"{to}{text}"},"auth":"x"}"#,
                "auth: found another text",
            ),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_gateway_takes_a_form_or_json() {
        for (format, expected) in [("form", FormFormat::Form), ("json", FormFormat::Json)] {
            let json = format!(
                r#"{{"provider":"http","url":"https://a.example","fields":{{"a":"{{to}}{{text}}"}},"format":"{format}"}}"#
            );
            assert_eq!(read(&json).unwrap().settings().form.format, expected);
        }
    }

    #[test]
    fn twilio_is_found_by_its_account() {
        let account =
            read(r#"{"from":"+15550100","account_sid":"AC1","user":"SK1","credential":"env:X"}"#);
        let settings = account.unwrap().settings();
        assert_eq!(settings.url, "https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json");
        assert_eq!(settings.auth, GatewayAuth::Basic("SK1".into()));
    }
}
