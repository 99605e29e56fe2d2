//! What chat services refuse in a payload of the caller's own: nothing to show, or more than they take.
//! Pure, so that the intake can ask. Knows the numbers that the services publish, and no markup.

use postrider_core::FieldError;
use serde_json::Value;

use super::Flavour;

const PATH: &str = "chat.payload";
/// Characters, as Slack counts them.
const SLACK_TEXT_MAX: usize = 40_000;
const SLACK_BLOCKS_MAX: usize = 50;
const SLACK_ATTACHMENTS_MAX: usize = 100;
const DISCORD_CONTENT_MAX: usize = 2_000;
const DISCORD_EMBEDS_MAX: usize = 10;
const DISCORD_FIELDS_MAX: usize = 25;
/// Of all embeds of a message together.
const DISCORD_TOTAL_MAX: usize = 6_000;
/// The whole message as it is posted.
pub(super) const TEAMS_BYTES_MAX: usize = 28 * 1024;

/// Why a service would refuse this; `len` is its size as it is posted.
pub(crate) fn flaw(flavour: Flavour, payload: &Value, len: usize) -> Option<FieldError> {
    match flavour {
        Flavour::Slack => slack(payload),
        Flavour::Discord => discord(payload),
        Flavour::Teams => teams(payload, len),
        Flavour::Other => None,
    }
}

fn slack(payload: &Value) -> Option<FieldError> {
    let parts = ["blocks", "attachments"];
    if text(&payload["text"]).is_empty() && parts.iter().all(|name| list(&payload[name]).is_empty())
    {
        return Some(nothing("text, blocks or attachments"));
    }
    let characters = text(&payload["text"]).chars().count();
    over("text", characters, SLACK_TEXT_MAX, "characters")
        .or(over("blocks", list(&payload["blocks"]).len(), SLACK_BLOCKS_MAX, "blocks"))
        .or(over(
            "attachments",
            list(&payload["attachments"]).len(),
            SLACK_ATTACHMENTS_MAX,
            "attachments",
        ))
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
    let found = over("content", units(&payload["content"]), DISCORD_CONTENT_MAX, "characters")
        .or(over("embeds", embeds.len(), DISCORD_EMBEDS_MAX, "embeds"))
        .or(embeds
            .iter()
            .enumerate()
            .find_map(|(nth, embed)| discord_embed(&format!("embeds[{nth}]"), embed, &mut total)));
    found.or_else(|| over("embeds", total, DISCORD_TOTAL_MAX, "characters in all"))
}

fn discord_embed(path: &str, embed: &Value, total: &mut usize) -> Option<FieldError> {
    let mut limited = |name: String, value: &Value, max: usize| {
        let len = units(value);
        *total += len;
        over(&name, len, max, "characters")
    };
    let found = limited(format!("{path}.title"), &embed["title"], 256)
        .or(limited(format!("{path}.description"), &embed["description"], 4_096))
        .or(limited(format!("{path}.footer.text"), &embed["footer"]["text"], 2_048))
        .or(limited(format!("{path}.author.name"), &embed["author"]["name"], 256));
    let fields = list(&embed["fields"]);
    let found =
        found.or(over(&format!("{path}.fields"), fields.len(), DISCORD_FIELDS_MAX, "fields"));
    found.or_else(|| {
        fields.iter().enumerate().find_map(|(nth, field)| {
            limited(format!("{path}.fields[{nth}].name"), &field["name"], 256).or(limited(
                format!("{path}.fields[{nth}].value"),
                &field["value"],
                1_024,
            ))
        })
    })
}

fn teams(payload: &Value, len: usize) -> Option<FieldError> {
    if list(&payload["attachments"]).is_empty() && text(&payload["text"]).is_empty() {
        return Some(nothing("attachments or text"));
    }
    let too_long = (len > TEAMS_BYTES_MAX).then(|| format!("{len} bytes"));
    too_long
        .map(|found| FieldError::new(PATH, found, "at most 28672 bytes, which is all Teams takes"))
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

    fn refused(flavour: Flavour, payload: &Value) -> Option<(String, String)> {
        let len = payload.to_string().len();
        flaw(flavour, payload, len).map(|error| (error.field, error.found))
    }

    #[test]
    fn what_a_service_cannot_show_is_told_by_its_own_names() {
        let is = |field: &str, found: &str| Some((field.to_owned(), found.to_owned()));
        let nothing = is("chat.payload", "nothing to show");
        for flavour in [Flavour::Slack, Flavour::Discord, Flavour::Teams] {
            assert_eq!(refused(flavour, &json!({"txt": "x"})), nothing);
        }
        assert_eq!(refused(Flavour::Other, &json!({"anything": 1})), None);
        let long = json!({"content": "x".repeat(2001)});
        assert_eq!(refused(Flavour::Discord, &long), is("chat.payload.content", "2001 characters"));
        let long = json!({"embeds": [{"title": "x"}, {"title": "x".repeat(257)}]});
        let title = is("chat.payload.embeds[1].title", "257 characters");
        assert_eq!(refused(Flavour::Discord, &long), title);
        let many = json!({"embeds": [{"description": "x".repeat(4096)}, {"description": "x".repeat(1905)}]});
        assert_eq!(
            refused(Flavour::Discord, &many),
            is("chat.payload.embeds", "6001 characters in all")
        );
        let many = json!({"blocks": vec![json!({}); 51]});
        assert_eq!(refused(Flavour::Slack, &many), is("chat.payload.blocks", "51 blocks"));
        let long = json!({"text": "x".repeat(29_000)});
        assert_eq!(refused(Flavour::Teams, &long), is("chat.payload", "29011 bytes"));
        assert_eq!(refused(Flavour::Slack, &long), None);
    }
}
