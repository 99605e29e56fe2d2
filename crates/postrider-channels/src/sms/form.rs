//! The request that a gateway expects: its fields with placeholders, their format, and the kind of login.

use ::http::header::{ACCEPT, AUTHORIZATION};
use ::http::{HeaderName, HeaderValue, Method};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::DeliveryId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pool::{JSON, Request};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormFormat {
    #[default]
    Form,
    Json,
}

/// The fields of a gateway in their order. A value is text with the placeholders `{to}`, `{from}`, `{text}`,
/// `{validity_s}`, `{delivery}`, `{secret}` and, for Twilio, `{callback}`. A field with an empty value is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayForm {
    pub format: FormFormat,
    pub fields: Vec<(String, String)>,
}

/// How a call logs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GatewayAuth {
    /// The secret, if any, is in the fields.
    #[default]
    None,
    /// The user's name; the secret is the password.
    Basic(String),
    Bearer,
    Header(HeaderName),
}

/// The values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub struct SmsFormValues<'a> {
    pub to: &'a str,
    pub from: &'a str,
    pub text: &'a str,
    pub delivery: DeliveryId,
    pub validity_s: u32,
    pub secret: &'a str,
    /// Where the provider reports; empty if it does not.
    pub callback: &'a str,
}

impl GatewayForm {
    /// Twilio's Messages resource. A sender that begins with `MG` is a messaging service.
    pub fn twilio(from: &str, status_callback: Option<&str>) -> Self {
        let sender = if from.starts_with("MG") { "MessagingServiceSid" } else { "From" };
        let fields = [
            ("To", "{to}"),
            (sender, "{from}"),
            ("Body", "{text}"),
            ("ValidityPeriod", "{validity_s}"),
            ("StatusCallback", status_callback.unwrap_or_default()),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { format: FormFormat::Form, fields: fields.into() }
    }

    /// The first placeholder that has no value.
    pub fn unknown_placeholder(&self) -> Option<&str> {
        let known = ["to", "from", "text", "validity_s", "delivery", "secret"];
        self.fields.iter().find_map(|(_, value)| {
            let names = value.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
            names.into_iter().find(|name| !known.contains(name))
        })
    }

    pub(super) fn request(&self, auth: &GatewayAuth, fields: &SmsFormValues<'_>) -> Request {
        let filled = self.fields.iter().map(|(name, value)| (name.as_str(), fields.fill(value)));
        let filled = filled.filter(|(_, value)| !value.is_empty());
        let (kind, body) = match self.format {
            FormFormat::Form => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                filled.for_each(|(name, value)| {
                    form.append_pair(name, &value);
                });
                ("application/x-www-form-urlencoded", form.finish())
            }
            FormFormat::Json => {
                let object: Map<String, Value> =
                    filled.map(|(name, value)| (name.to_owned(), value.into())).collect();
                (JSON, Value::Object(object).to_string())
            }
        };
        let mut request = auth.sign(Request::new(Method::POST, kind, body), fields.secret);
        request.headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        request
    }
}

impl GatewayAuth {
    /// Adds the login to the request.
    pub(super) fn sign(&self, request: Request, secret: &str) -> Request {
        match self {
            Self::None => request,
            Self::Basic(user) => {
                let pair = STANDARD.encode(format!("{user}:{secret}"));
                request.with_secret(AUTHORIZATION, format!("Basic {pair}"))
            }
            Self::Bearer => request.with_secret(AUTHORIZATION, format!("Bearer {secret}")),
            Self::Header(name) => request.with_secret(name.clone(), secret.to_owned()),
        }
    }
}

impl SmsFormValues<'_> {
    /// Fills in all placeholders in one pass, so that a placeholder in a message's text stays as it is.
    fn fill(&self, template: &str) -> String {
        let mut out = String::with_capacity(template.len() + self.text.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            out.push_str(before);
            let Some((name, tail)) = after.split_once('}') else {
                out.push('{');
                out.push_str(after);
                return out;
            };
            match name {
                "to" => out.push_str(self.to),
                "from" => out.push_str(self.from),
                "text" => out.push_str(self.text),
                "validity_s" => out.push_str(&self.validity_s.to_string()),
                "delivery" => out.push_str(&self.delivery.to_string()),
                "secret" => out.push_str(self.secret),
                "callback" => out.push_str(self.callback),
                _ => {}
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: SmsFormValues<'_> = SmsFormValues {
        to: "+491701234567",
        from: "+15550100",
        text: "5 € & {to} {secret}",
        delivery: DeliveryId(9),
        validity_s: 90,
        secret: "s3cret",
        callback: "https://push.example/v1/callbacks/phone/abc",
    };

    fn body(request: &Request) -> &str {
        std::str::from_utf8(&request.body).unwrap()
    }

    #[test]
    fn twilio_gets_its_form_with_the_time_that_is_left() {
        let form = GatewayForm::twilio("+15550100", Some("https://shop.example/cb"));
        let request = form.request(&GatewayAuth::Basic("SK1".into()), &FIELDS);
        assert_eq!(
            body(&request),
            "To=%2B491701234567&From=%2B15550100&Body=5+%E2%82%AC+%26+%7Bto%7D+%7Bsecret%7D\
             &ValidityPeriod=90&StatusCallback=https%3A%2F%2Fshop.example%2Fcb"
        );
        assert_eq!(request.headers[AUTHORIZATION], "Basic U0sxOnMzY3JldA==");
        let form = GatewayForm::twilio("+15550100", Some("{callback}"));
        let request = form.request(&GatewayAuth::None, &FIELDS);
        let callback = "&StatusCallback=https%3A%2F%2Fpush.example%2Fv1%2Fcallbacks%2Fphone%2Fabc";
        assert!(body(&request).ends_with(callback), "{}", body(&request));
        let service = GatewayForm::twilio("MG123", None);
        assert!(service.fields.contains(&("MessagingServiceSid".into(), "{from}".into())));
    }

    #[test]
    fn another_gateway_is_a_matter_of_names() {
        let fields = [("recipient", "{to}"), ("message", "{text}"), ("key", "{secret}"), ("x", "")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let form = GatewayForm { format: FormFormat::Json, fields };
        let request = form.request(&GatewayAuth::None, &FIELDS);
        let sent: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            sent,
            serde_json::json!({"recipient": "+491701234567", "message": "5 € & {to} {secret}", "key": "s3cret"})
        );
        assert!(!request.headers.contains_key(AUTHORIZATION));
        assert_eq!(form.unknown_placeholder(), None);
        let wrong = GatewayForm { fields: vec![("a".into(), "{txt}".into())], ..form };
        assert_eq!(wrong.unknown_placeholder(), Some("txt"));
    }
}
