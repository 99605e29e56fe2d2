//! `content.telegram`: what a message says on this channel alone.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::definition::impl_content;

/// The fields of `sendMessage`, without the chat.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelegramContent<'a> {
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
    /// How `text` is marked up; plain text if absent.
    #[serde(default)]
    pub parse_mode: Option<TelegramParseMode>,
    /// The recipient's device makes no sound.
    #[serde(default)]
    pub disable_notification: Option<bool>,
    /// The message cannot be forwarded or saved.
    #[serde(default)]
    pub protect_content: Option<bool>,
    /// The topic of a forum.
    #[serde(default)]
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub link_preview_options: Option<Map<String, Value>>,
    /// Buttons, for example `{"inline_keyboard": …}`.
    #[serde(default)]
    pub reply_markup: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TelegramParseMode {
    #[serde(rename = "HTML")]
    Html,
    MarkdownV2,
    Markdown,
}

impl_content!(TelegramContent);
