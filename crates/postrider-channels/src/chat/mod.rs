//! Chat messages by incoming webhook: Slack, Discord, Teams, and whoever speaks Slack's dialect. The
//! webhook's URL is address and credential in one. Reads no chat and follows no redirect.

mod content;
mod flavour;
mod intake;
mod limits;
mod render;
mod settings;
mod target;

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use postrider_core::model::content::{Content, raw_bytes};
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Report};
use serde_json::Value;

pub use content::ChatContent;
pub use flavour::{Flavour, Flavours};
pub use intake::ChatIntake;
pub(crate) use limits::flaw;
pub(crate) use render::render;
pub use settings::ChatSection;
pub use target::ChatTarget;

use crate::deliver::{Ended, Protocol, Reading, Wiring, bad_content, impl_channel};
use crate::pool::{Endpoint, Request, Response};
use crate::scrub;
use crate::target::target_of;

pub const KIND: ChannelKind = ChannelKind::new("chat");
pub const TRAITS: ChannelTraits = ChannelTraits::PLAIN;

pub struct ChatChannel {
    pub wiring: Wiring,
    pub flavours: Flavours,
}

impl_channel!(ChatChannel);

pub(crate) struct ChatCall {
    endpoint: Endpoint,
    url: String,
    flavour: Flavour,
    body: Bytes,
}

impl Protocol for ChatChannel {
    type Ready = ChatCall;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<ChatCall, Ended>> {
        attempts.iter().map(|attempt| self.call(attempt)).collect()
    }

    async fn send(&self, attempt: &Attempt, call: ChatCall) -> Report {
        let request =
            |_| Request { method: Method::POST, headers: headers(), body: call.body.clone() };
        let response = match self.wiring.exchange(attempt, &call.endpoint, request).await {
            Ok(response) => response,
            Err(ended) => return *ended,
        };
        let told = ChatAnswer::read(call.flavour, &response);
        let sent = std::str::from_utf8(&call.body).unwrap_or_default();
        let reading = Reading {
            service: call.flavour.service(),
            code: told.code,
            token_age: None,
            retry_after: told.retry_after,
            provider_id: told.id,
            hide: &[&call.url, sent],
        };
        self.wiring.judge(&response, reading)
    }
}

impl ChatChannel {
    fn call(&self, attempt: &Attempt) -> Result<ChatCall, Ended> {
        let ChatTarget { url } = target_of(attempt)?;
        let endpoint = self.wiring.endpoint(&url)?;
        let flavour = self.flavours.of(&url);
        let content = Content::parse(&attempt.message.content).map_err(bad_content)?;
        let body = match ChatContent::of(&content).map_err(bad_content)?.payload {
            Some(payload) => raw_bytes(payload).into_owned(),
            None => render(flavour, &content).to_string(),
        };
        Ok(ChatCall { endpoint, url: url.into_owned(), flavour, body: body.into() })
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, crate::webpush::AGENT);
    headers
}

/// What an answer says beside its status.
struct ChatAnswer {
    code: Option<String>,
    retry_after: Option<String>,
    id: Option<String>,
}

impl ChatAnswer {
    fn read(flavour: Flavour, response: &Response) -> Self {
        let text = || {
            let text = scrub::shorten(String::from_utf8_lossy(&response.body).trim(), 256);
            Some(text).filter(|text| !text.is_empty())
        };
        let failed = !response.status.is_success();
        match flavour {
            Flavour::Discord => Self::discord(response),
            // A connector of old says 200 to everything, and in words what became of it.
            Flavour::Teams => Self { code: text(), retry_after: None, id: None },
            Flavour::Slack | Flavour::Other => {
                Self { code: text().filter(|_| failed), retry_after: None, id: None }
            }
        }
    }

    /// `{"message", "code"}`, and when there were too many `{"retry_after": 0.75, "global": false}`.
    fn discord(response: &Response) -> Self {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let limited = response.status.as_u16() == 429;
        let global = limited && body["global"].as_bool() == Some(true);
        let wait = body["retry_after"].as_f64().filter(|wait| limited && wait.is_finite());
        let failed = !response.status.is_success();
        let number = body["code"].as_i64().filter(|_| failed).map(|code| code.to_string());
        Self {
            code: if global { Some("global".to_owned()) } else { number },
            retry_after: wait.map(|wait| format!("{:.0}", wait.max(0.0).ceil())),
            id: body["id"].as_str().map(|id| scrub::shorten(id, 64)),
        }
    }
}
