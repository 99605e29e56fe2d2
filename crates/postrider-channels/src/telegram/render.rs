//! A message's content as the body of `sendMessage`. Pure.

use postrider_core::model::content::Content;
use serde_json::{Map, Value, json};

use super::{TelegramContent, TelegramDraft};

/// Everything but the chat: the channel's own text, or else title, body and link on one line each, without markup.
pub(super) fn draft(content: &Content<'_>, own: TelegramContent<'_>) -> TelegramDraft {
    let text = match own.text {
        Some(text) => text.into_owned(),
        None => {
            let parts = [&content.title, &content.body, &content.url].into_iter().flatten();
            let parts: Vec<&str> =
                parts.map(|part| &**part).filter(|part| !part.is_empty()).collect();
            parts.join("\n")
        }
    };
    let optional = [
        ("parse_mode", own.parse_mode.map(|mode| json!(mode))),
        ("disable_notification", own.disable_notification.map(Value::from)),
        ("protect_content", own.protect_content.map(Value::from)),
        ("message_thread_id", own.message_thread_id.map(Value::from)),
        ("link_preview_options", own.link_preview_options.map(Value::from)),
        ("reply_markup", own.reply_markup.map(Value::from)),
    ];
    let mut fields = Map::from_iter([("text".to_owned(), Value::from(text.as_str()))]);
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    TelegramDraft { text, fields }
}

/// The body of a call to this chat.
pub(super) fn body(chat: &str, draft: &TelegramDraft) -> String {
    let chat = chat.parse::<i64>().map_or_else(|_| Value::from(chat), Value::from);
    let mut fields = draft.fields.clone();
    fields.insert("chat_id".to_owned(), chat);
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(chat: &str, content: &str) -> Value {
        let content = Content::parse(content).unwrap();
        let draft = draft(&content, TelegramContent::of(&content).unwrap());
        serde_json::from_str(&body(chat, &draft)).unwrap()
    }

    #[test]
    fn the_common_fields_are_one_text_without_markup() {
        let json = r#"{"title":"1 < 2 *","body":"Order 91","url":"https://a.example"}"#;
        let expected = json!({"chat_id": -100123, "text": "1 < 2 *\nOrder 91\nhttps://a.example"});
        assert_eq!(sent("-100123", json), expected);
        assert_eq!(sent("@news", r#"{"body":"x"}"#), json!({"chat_id": "@news", "text": "x"}));
    }

    #[test]
    fn the_channel_s_own_fields_are_sent_as_they_are() {
        let own = json!({"text": "<b>Hi</b>", "parse_mode": "HTML", "disable_notification": true,
            "protect_content": false, "message_thread_id": 7,
            "link_preview_options": {"is_disabled": true},
            "reply_markup": {"inline_keyboard": [[{"text": "Open", "url": "https://a.example"}]]}});
        let mut expected = own.clone();
        expected["chat_id"] = 5.into();
        assert_eq!(sent("5", &json!({"title": "x", "telegram": own}).to_string()), expected);
    }
}
