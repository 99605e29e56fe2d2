//! Checks a caller's own payload: it must show something and keep the limits that the chat services publish. Ignores
//! markup.

use postrider_core::FieldError;
use serde_json::Value;

use super::ChatService;

const PATH: &str = "chat.payload";
/// Characters, as Slack counts them.
const SLACK_TEXT_MAX: usize = 40_000;
const SLACK_BLOCKS_MAX: usize = 50;
const SLACK_ATTACHMENTS_MAX: usize = 100;
const DISCORD_CONTENT_MAX: usize = 2_000;
const DISCORD_EMBEDS_MAX: usize = 10;
const DISCORD_FIELDS_MAX: usize = 25;
/// In all embeds of a message together.
const DISCORD_TOTAL_MAX: usize = 6_000;
/// The whole message as it is posted.
const TEAMS_BYTES_MAX: usize = 28 * 1024;

/// The reason why a service would refuse this payload; `len` is its size as it is posted.
pub(crate) fn flaw(service: ChatService, payload: &Value, len: usize) -> Option<FieldError> {
    match service {
        ChatService::Slack => slack(payload),
        ChatService::Discord => discord(payload),
        ChatService::Teams => teams(payload, len),
        ChatService::Other => None,
    }
}

fn slack(payload: &Value) -> Option<FieldError> {
    let parts = ["blocks", "attachments"];
    if text(&payload["text"]).is_empty() && parts.iter().all(|name| list(&payload[name]).is_empty())
    {
        return Some(nothing("text, blocks or attachments"));
    }
    let characters = text(&payload["text"]).chars().count();
    let items = |name: &str, max| over(name, list(&payload[name]).len(), max, name);
    over("text", characters, SLACK_TEXT_MAX, "characters")
        .or_else(|| items("blocks", SLACK_BLOCKS_MAX))
        .or_else(|| items("attachments", SLACK_ATTACHMENTS_MAX))
}

fn discord(payload: &Value) -> Option<FieldError> {
    let embeds = list(&payload["embeds"]);
    let others = ["components", "poll", "sticker_ids"];
    if text(&payload["content"]).is_empty()
        && embeds.is_empty()
        && others.iter().all(|name| payload[name].is_null())
    {
        return Some(nothing("content or embeds"));
    }
    let mut total = 0;
    over("content", units(&payload["content"]), DISCORD_CONTENT_MAX, "characters")
        .or_else(|| over("embeds", embeds.len(), DISCORD_EMBEDS_MAX, "embeds"))
        .or_else(|| {
            let mut embeds = embeds.iter().enumerate();
            embeds.find_map(|(n, embed)| discord_embed(&format!("embeds[{n}]"), embed, &mut total))
        })
        .or_else(|| over("embeds", total, DISCORD_TOTAL_MAX, "characters in all"))
}

/// Adds the embed's characters to `total`.
fn discord_embed(path: &str, embed: &Value, total: &mut usize) -> Option<FieldError> {
    let mut check = |name: &str, value: &Value, max| {
        let len = units(value);
        *total += len;
        over(&format!("{path}.{name}"), len, max, "characters")
    };
    let fields = list(&embed["fields"]);
    check("title", &embed["title"], 256)
        .or_else(|| check("description", &embed["description"], 4_096))
        .or_else(|| check("footer.text", &embed["footer"]["text"], 2_048))
        .or_else(|| check("author.name", &embed["author"]["name"], 256))
        .or_else(|| over(&format!("{path}.fields"), fields.len(), DISCORD_FIELDS_MAX, "fields"))
        .or_else(|| {
            fields.iter().enumerate().find_map(|(n, field)| {
                check(&format!("fields[{n}].name"), &field["name"], 256)
                    .or_else(|| check(&format!("fields[{n}].value"), &field["value"], 1_024))
            })
        })
}

fn teams(payload: &Value, len: usize) -> Option<FieldError> {
    if list(&payload["attachments"]).is_empty() && text(&payload["text"]).is_empty() {
        return Some(nothing("attachments or text"));
    }
    let allowed = "at most 28672 bytes, which is Teams' limit";
    (len > TEAMS_BYTES_MAX).then(|| FieldError::new(PATH, format!("{len} bytes"), allowed))
}

fn nothing(allowed: &str) -> FieldError {
    FieldError::new(PATH, "nothing to show", allowed)
}

fn over(name: &str, len: usize, max: usize, what: &str) -> Option<FieldError> {
    let found = (len > max).then(|| format!("{len} {what}"))?;
    Some(FieldError::new(format!("{PATH}.{name}"), found, format!("at most {max}")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// UTF-16 units, which is how Discord counts.
fn units(value: &Value) -> usize {
    text(value).encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(service: ChatService, payload: &Value) -> Option<(String, String)> {
        let len = payload.to_string().len();
        flaw(service, payload, len).map(|error| (error.field, error.found))
    }

    #[test]
    fn what_a_service_cannot_show_is_told_by_its_own_names() {
        let is = |field: &str, found: &str| Some((field.to_owned(), found.to_owned()));
        let nothing = is("chat.payload", "nothing to show");
        for service in [ChatService::Slack, ChatService::Discord, ChatService::Teams] {
            assert_eq!(refused(service, &json!({"txt": "x"})), nothing);
        }
        assert_eq!(refused(ChatService::Other, &json!({"anything": 1})), None);
        let long = json!({"content": "x".repeat(2001)});
        assert_eq!(
            refused(ChatService::Discord, &long),
            is("chat.payload.content", "2001 characters")
        );
        let long = json!({"embeds": [{"title": "x"}, {"title": "x".repeat(257)}]});
        let title = is("chat.payload.embeds[1].title", "257 characters");
        assert_eq!(refused(ChatService::Discord, &long), title);
        let many = json!({"embeds": [{"description": "x".repeat(4096)}, {"description": "x".repeat(1905)}]});
        assert_eq!(
            refused(ChatService::Discord, &many),
            is("chat.payload.embeds", "6001 characters in all")
        );
        let many = json!({"blocks": vec![json!({}); 51]});
        assert_eq!(refused(ChatService::Slack, &many), is("chat.payload.blocks", "51 blocks"));
        let long = json!({"text": "x".repeat(29_000)});
        assert_eq!(refused(ChatService::Teams, &long), is("chat.payload", "29011 bytes"));
        assert_eq!(refused(ChatService::Slack, &long), None);
    }
}
