//! `[http]`, and what the program knows about generic HTTP requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::FieldError;
use postrider_core::model::content::{Content, raw_bytes, read_part};

use super::secret_names::{SecretNames, is_pattern};
use super::{AllowedCredential, EnvAndFiles, HttpChannel, HttpContent, HttpIntake, KIND};
use crate::Error;
use crate::accounts::SecretRef;
use crate::accounts::health::Finding;
use crate::address::origin;
use crate::definition::{
    AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts, FieldForm,
};
use crate::preview::{ContentPreview, common_fields};
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Generic HTTP requests.
    HttpSection as "http" {
        /// Which credentials callers may name: each with the one origin that it may be sent to and the tenants that
        /// may name it, "*" for all, e.g. ["env:BILLING_TOKEN https://api.billing.example acme,shop",
        /// "file:/run/secrets/crm https://crm.example *"].
        credentials: Vec<String> = Vec::new(),
        /// Further names of headers and query parameters that carry a secret, beside the built-in ones
        /// (authorization, *-token, *-key, *-secret, cookie, …), e.g. ["x-internal-*"]. They are refused.
        secret_names: Vec<String> = Vec::new(),
        /// Names that carry no secret, whatever they look like, e.g. ["x-sort-key"].
        public_names: Vec<String> = Vec::new(),
    }
    limits + per_address "Requests" " to one origin" = ChannelLimits::USUAL
}

const HEADERS: AddressField = AddressField {
    name: "headers",
    about: "the headers, by name",
    form: FieldForm::TextMap,
    required: false,
};

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<HttpContent<'_>>(KIND, raw).map(drop),
    accounts: None,
    address_fields: &[
        AddressField::optional_text("method", "the method, `POST` if absent"),
        AddressField::text("url", "where to send"),
        HEADERS,
        AddressField::optional_text(
            "credential",
            "`env:NAME` or `file:PATH`, as the operator listed it for this tenant and this origin in \
         `http.credentials`. It is read at each attempt and never stored",
        ),
    ],
    address_example: r#"{"channel": "http", "method": "PUT", "url": "https://example.com/orders/91"}"#,
    content_about: "`{\"body\": …}`: the body, byte for byte.",
    send_option: None,
};

#[async_trait]
impl ChannelDefinition for HttpSection {
    fn check(&self) -> Result<(), FieldError> {
        // An entry may be the secret itself by mistake, so that it is not repeated.
        let entry = |nth: usize| format!("entry {}", nth + 1);
        if let Some(nth) = self.credentials.iter().position(|e| parse_credential(e).is_none()) {
            let allowed = "env:NAME or file:PATH, an origin such as https://api.example.com, and the \
                           tenants that may name it (acme,shop or *), with spaces between them";
            return Err(FieldError::new("credentials", entry(nth), allowed));
        }
        for (field, names) in
            [("secret_names", &self.secret_names), ("public_names", &self.public_names)]
        {
            if let Some(nth) = names.iter().position(|name| !is_pattern(name)) {
                let allowed = "a name of letters, digits, - _ or ., with * at its start or end";
                return Err(FieldError::new(field, entry(nth), allowed));
            }
        }
        Ok(())
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        if let Some(body) = HttpContent::of(content).ok()?.body {
            return Some(ContentPreview::body(&raw_bytes(body)));
        }
        match content.is_bare() {
            true => Some(ContentPreview::body("")),
            false => Some(ContentPreview::body(&common_fields(content).to_string())),
        }
    }

    fn examine_settings(&self) -> Vec<Finding> {
        let all = self.allowed_credentials().into_iter();
        all.map(|allowed| examine_credential(&allowed.reference, &allowed.origin)).collect()
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let credentials = Arc::new(EnvAndFiles::allowing(self.allowed_credentials()));
        let channel = HttpChannel { wiring: parts.wiring, credentials: credentials.clone() };
        let names =
            SecretNames { secret: self.secret_names.clone(), public: self.public_names.clone() };
        let intake = HttpIntake { policy: parts.network, credentials, names };
        Ok(BuiltChannel::without_accounts(channel, intake))
    }
}

impl HttpSection {
    /// The credentials that callers may name.
    pub fn allowed_credentials(&self) -> Vec<AllowedCredential> {
        self.credentials.iter().filter_map(|entry| parse_credential(entry)).collect()
    }
}

fn parse_credential(entry: &str) -> Option<AllowedCredential> {
    let (rest, tenants) = entry.trim().rsplit_once(' ')?;
    let (reference, of) = rest.trim().rsplit_once(' ')?;
    let is_name = |name: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        name == "*" || (!name.is_empty() && name.bytes().all(allowed))
    };
    let tenants: BTreeSet<_> = tenants.split(',').map(str::to_owned).collect();
    if !tenants.iter().all(|name| is_name(name)) {
        return None;
    }
    let reference = reference.trim();
    let is_known = ["env:", "file:"]
        .iter()
        .any(|kind| reference.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
    let normal = origin(of);
    (is_known && of.contains("://") && *normal == *of.trim_end_matches('/')).then(|| {
        AllowedCredential { reference: reference.to_owned(), origin: normal.to_string(), tenants }
    })
}

fn examine_credential(reference: &str, origin: &str) -> Finding {
    match SecretRef::parse(reference).map_err(|e| e.to_string()).and_then(|r| r.read()) {
        Ok(_) => Finding::ok("http.credentials", format!("{reference} for {origin} was read")),
        Err(why) => Finding::fail(
            "http.credentials",
            why,
            "set the variable or put the file there, or take the entry out of http.credentials",
        ),
    }
}
