//! `[http]`, and what the program knows about generic HTTP requests.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::FieldError;
use postrider_core::model::content::{Content, raw_bytes, read_part};

use super::{EnvAndFiles, HttpChannel, HttpContent, HttpIntake, KIND};
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
        /// Which credentials callers may name, each with the one origin that it may be sent to, e.g.
        /// ["env:BILLING_TOKEN https://api.billing.example", "file:/run/secrets/crm https://crm.example"].
        credentials: Vec<String> = Vec::new(),
    }
    limits + per_address "Requests" " to one origin" = ChannelLimits::USUAL
}

const HEADERS: AddressField =
    AddressField { name: "headers", about: "the headers, by name", form: FieldForm::TextMap };

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<HttpContent<'_>>(KIND, raw).map(drop),
    accounts: None,
    address_fields: &[
        AddressField::text("method", "the method"),
        AddressField::text("url", "where to send"),
        HEADERS,
        AddressField::text(
            "credential",
            "`env:NAME` or `file:PATH`, as the operator listed it for this origin in \
         `http.credentials`. It is read at each attempt and never stored",
        ),
    ],
    content_about: "`{\"body\": …}`: the body, byte for byte.",
    send_option: None,
};

#[async_trait]
impl ChannelDefinition for HttpSection {
    fn check(&self) -> Result<(), FieldError> {
        match self.credentials.iter().find(|entry| parse_credential(entry).is_none()) {
            None => Ok(()),
            Some(wrong) => {
                let allowed = "env:NAME or file:PATH, a space, and an origin such as \
                               https://api.example.com";
                Err(FieldError::new("credentials", format!("{wrong:?}"), allowed))
            }
        }
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
        all.map(|(reference, origin)| examine_credential(&reference, &origin)).collect()
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let credentials = Arc::new(EnvAndFiles::allowing(self.allowed_credentials()));
        let channel = HttpChannel { wiring: parts.wiring, credentials };
        Ok(BuiltChannel::without_accounts(channel, HttpIntake { policy: parts.network }))
    }
}

impl HttpSection {
    /// The credentials that callers may name, with their origins.
    pub fn allowed_credentials(&self) -> Vec<(String, String)> {
        self.credentials.iter().filter_map(|entry| parse_credential(entry)).collect()
    }
}

fn parse_credential(entry: &str) -> Option<(String, String)> {
    let (reference, of) = entry.rsplit_once(' ')?;
    let reference = reference.trim();
    let is_known = ["env:", "file:"]
        .iter()
        .any(|kind| reference.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
    let normal = origin(of);
    (is_known && of.contains("://") && *normal == *of.trim_end_matches('/'))
        .then(|| (reference.to_owned(), normal.to_string()))
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
