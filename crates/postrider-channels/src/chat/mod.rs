//! Chat messages by incoming webhook, to Slack, Discord, Teams, and services that accept what Slack accepts. The
//! webhook's URL is both address and credential.

mod content;
mod intake;
mod limits;
mod render;
mod service;
mod settings;
mod target;

use ::http::Method;
use bytes::Bytes;
use postrider_core::model::content::raw_bytes;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Report};
use serde_json::Value;

pub use content::ChatContent;
pub use intake::ChatIntake;
pub(crate) use limits::flaw;
pub(crate) use render::render;
pub use service::{ChatHosts, ChatService};
pub use settings::ChatSection;
pub use target::ChatTarget;

use crate::deliver::{Ended, Protocol, Reading, Wiring, content_of, impl_channel};
use crate::pool::{Endpoint, JSON, Request, Response};
use crate::scrub;
use crate::target::target_of;

pub const KIND: ChannelKind = ChannelKind::new("chat");
pub const TRAITS: ChannelTraits = ChannelTraits::PLAIN;

pub struct ChatChannel {
    pub wiring: Wiring,
    pub hosts: ChatHosts,
}

impl_channel!(ChatChannel);

pub(crate) struct ChatCall {
    endpoint: Endpoint,
    service: ChatService,
    body: Bytes,
}

impl Protocol for ChatChannel {
    type Ready = ChatCall;

    fn prepare(&self, attempt: &Attempt) -> Result<ChatCall, Ended> {
        let ChatTarget { url } = target_of(attempt)?;
        let endpoint = self.wiring.endpoint(&url)?;
        let service = self.hosts.of(&url);
        let (content, ChatContent { payload }) = content_of(KIND, &attempt.message)?;
        let body = match payload {
            Some(payload) => raw_bytes(payload).into_owned(),
            None => render(service, &content).to_string(),
        };
        Ok(ChatCall { endpoint, service, body: body.into() })
    }

    async fn send(&self, attempt: &Attempt, call: ChatCall) -> Result<Report, Ended> {
        let request = |_| Request::new(Method::POST, JSON, call.body.clone());
        let response = self.wiring.exchange(attempt, &call.endpoint, request).await?;
        let reading = Reading {
            hide: &[std::str::from_utf8(&call.body).unwrap_or_default()],
            secret_url: Some(&call.endpoint),
            ..read_answer(call.service, &response)
        };
        Ok(self.wiring.judge(&response, reading))
    }
}

fn read_answer(service: ChatService, response: &Response) -> Reading<'static> {
    let reading = Reading { service: service.table_service(), ..Reading::default() };
    let failed = !response.status.is_success();
    match service {
        ChatService::Discord => read_discord(response, reading),
        ChatService::Slack | ChatService::Other if !failed => reading,
        // Old connectors of Teams always answer 200, and describe failures in the text.
        ChatService::Teams | ChatService::Slack | ChatService::Other => {
            let text = scrub::shorten(String::from_utf8_lossy(&response.body).trim(), 256);
            Reading { code: Some(text).filter(|text| !text.is_empty()), ..reading }
        }
    }
}

/// `{"message", "code"}`; for a 429 `{"retry_after": 0.75, "global": false}`.
fn read_discord(response: &Response, reading: Reading<'static>) -> Reading<'static> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let limited = response.status.as_u16() == 429;
    let global = limited && body["global"].as_bool() == Some(true);
    let wait = body["retry_after"].as_f64().filter(|wait| limited && wait.is_finite());
    let failed = !response.status.is_success();
    let number = body["code"].as_i64().filter(|_| failed).map(|code| code.to_string());
    Reading {
        code: if global { Some("global".to_owned()) } else { number },
        retry_after: wait.map(|wait| format!("{:.0}", wait.max(0.0).ceil())),
        provider_id: body["id"].as_str().map(|id| scrub::shorten(id, 64)),
        ..reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"message":"x","retry_after":0.75,"global":true,"code":40001}"#,
            r#"{"id":"123"}"#,
            "invalid_blocks",
            "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429",
        ];
        crate::fuzzed_answers::fuzz_answers("chat_answer", &seeds, |answer| {
            for service in
                [ChatService::Slack, ChatService::Discord, ChatService::Teams, ChatService::Other]
            {
                drop(read_answer(service, &answer));
            }
        });
    }
}
