//! `content.ntfy`: what a message says on this channel alone.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::definition::impl_content;

/// The fields of a published message, without the topic.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NtfyContent<'a> {
    #[serde(borrow, default)]
    pub message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub title: Option<Cow<'a, str>>,
    /// 1 to 5; by the message's priority or its class if absent.
    #[serde(default)]
    pub priority: Option<u8>,
    /// Words, or names of emojis.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// What a click opens.
    #[serde(borrow, default)]
    pub click: Option<Cow<'a, str>>,
    /// Whether `message` is Markdown.
    #[serde(default)]
    pub markdown: Option<bool>,
    /// The URL of an image.
    #[serde(borrow, default)]
    pub icon: Option<Cow<'a, str>>,
    /// The URL of a file.
    #[serde(borrow, default)]
    pub attach: Option<Cow<'a, str>>,
    /// Buttons.
    #[serde(default)]
    pub actions: Option<Vec<Map<String, Value>>>,
}

impl_content!(NtfyContent);
