//! The messages of chat services as cards, for the inbox: what a person in the chat would see.

use serde_json::Value;

use crate::inbox::view::{InboxCardPart, InboxView, ShownMessage, plain_text, text_of};

pub(super) fn show(shown: &ShownMessage<'_>) -> InboxView {
    let message = shown.json();
    match shown.receiver.split('.').next() {
        Some("discord") => InboxView::card("Discord", discord(&message)),
        Some("teams") => InboxView::card("Teams", teams(&message)),
        _ => InboxView::card("Slack", slack(&message)),
    }
}

fn slack(message: &Value) -> Vec<InboxCardPart> {
    let mut parts = Vec::new();
    // With blocks, the text is only for notifications.
    if message["blocks"].as_array().is_none_or(Vec::is_empty) {
        let text = slack_text(&text_of(&message["text"]));
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        match first.strip_prefix('*').and_then(|bold| bold.strip_suffix('*')) {
            Some(bold) => {
                push_heading(&mut parts, bold);
                push_text(&mut parts, rest);
            }
            None => push_text(&mut parts, &text),
        }
    }
    let attachments = list(&message["attachments"]);
    let nested = attachments.iter().flat_map(|attachment| list(&attachment["blocks"]));
    for block in list(&message["blocks"]).iter().chain(nested) {
        slack_block(&mut parts, block);
    }
    for attachment in attachments {
        push_heading(&mut parts, &text_of(&attachment["title"]));
        push_text(&mut parts, &slack_text(&text_of(&attachment["text"])));
        for field in list(&attachment["fields"]) {
            parts.push(InboxCardPart::Fact(text_of(&field["title"]), text_of(&field["value"])));
        }
    }
    parts
}

fn slack_block(parts: &mut Vec<InboxCardPart>, block: &Value) {
    match block["type"].as_str().unwrap_or_default() {
        "header" => push_heading(parts, &text_of(&block["text"]["text"])),
        "divider" => parts.push(InboxCardPart::Line),
        "image" => parts.push(InboxCardPart::Image(text_of(&block["image_url"]))),
        "actions" => {
            for button in list(&block["elements"]) {
                let label = text_of(&button["text"]["text"]);
                parts.push(InboxCardPart::Button(label, text_of(&button["url"])));
            }
        }
        _ => {
            push_text(parts, &slack_text(&text_of(&block["text"]["text"])));
            for text in list(&block["fields"]).iter().chain(list(&block["elements"])) {
                push_text(parts, &slack_text(&text_of(&text["text"])));
            }
        }
    }
}

/// `<https://…|label>` as label and link, entities as characters.
fn slack_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        shown.push_str(before);
        let Some((link, after)) = after.split_once('>') else {
            shown.push('<');
            rest = after;
            continue;
        };
        match link.split_once('|') {
            Some((url, label)) => shown.push_str(&format!("{label} ({url})")),
            None => shown.push_str(link),
        }
        rest = after;
    }
    plain_text(&(shown + rest))
}

fn discord(message: &Value) -> Vec<InboxCardPart> {
    let mut parts = Vec::new();
    push_text(&mut parts, &text_of(&message["content"]));
    for embed in list(&message["embeds"]) {
        push_heading(&mut parts, &text_of(&embed["title"]));
        push_text(&mut parts, &text_of(&embed["description"]));
        for field in list(&embed["fields"]) {
            parts.push(InboxCardPart::Fact(text_of(&field["name"]), text_of(&field["value"])));
        }
        if let Some(image) = embed["image"]["url"].as_str() {
            parts.push(InboxCardPart::Image(image.to_owned()));
        }
        if let Some(url) = embed["url"].as_str() {
            parts.push(InboxCardPart::Button("Open".to_owned(), url.to_owned()));
        }
        push_text(&mut parts, &text_of(&embed["footer"]["text"]));
    }
    parts
}

fn teams(message: &Value) -> Vec<InboxCardPart> {
    let mut parts = Vec::new();
    push_heading(&mut parts, &text_of(&message["title"]));
    push_text(&mut parts, &text_of(&message["text"]));
    for attachment in list(&message["attachments"]) {
        let card = &attachment["content"];
        for block in list(&card["body"]) {
            teams_block(&mut parts, block);
        }
        for action in list(&card["actions"]) {
            let (label, url) = (text_of(&action["title"]), text_of(&action["url"]));
            parts.push(InboxCardPart::Button(label, url));
        }
    }
    parts
}

fn teams_block(parts: &mut Vec<InboxCardPart>, block: &Value) {
    let text = text_of(&block["text"]);
    match block["type"].as_str().unwrap_or_default() {
        "FactSet" => {
            for fact in list(&block["facts"]) {
                parts.push(InboxCardPart::Fact(text_of(&fact["title"]), text_of(&fact["value"])));
            }
        }
        "Image" => parts.push(InboxCardPart::Image(text_of(&block["url"]))),
        _ if block["weight"] == "Bolder" => push_heading(parts, &text),
        _ => push_text(parts, &text),
    }
}

fn push_heading(parts: &mut Vec<InboxCardPart>, text: &str) {
    if !text.is_empty() {
        parts.push(InboxCardPart::Heading(text.to_owned()));
    }
}

fn push_text(parts: &mut Vec<InboxCardPart>, text: &str) {
    if !text.is_empty() {
        parts.push(InboxCardPart::Text(text.to_owned()));
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_card_has_what_a_person_in_the_chat_sees() {
        let text = json!({"text": "*Hi*\n1 &lt; 2\n<https://a.example|more>"});
        assert_eq!(
            json!(slack(&text)),
            json!([
                {"part": "heading", "value": "Hi"},
                {"part": "text", "value": "1 < 2\nmore (https://a.example)"},
            ])
        );
        let blocks = json!({"text": "x", "blocks": [
            {"type": "header", "text": {"text": "Order 91"}},
            {"type": "section", "text": {"text": "shipped"}},
            {"type": "actions", "elements": [{"text": {"text": "Open"}, "url": "https://a.example"}]},
        ]});
        assert_eq!(
            json!(slack(&blocks)),
            json!([
                {"part": "heading", "value": "Order 91"},
                {"part": "text", "value": "shipped"},
                {"part": "button", "value": ["Open", "https://a.example"]},
            ])
        );
        let embed =
            json!({"embeds": [{"title": "T", "description": "D", "url": "https://a.example"}]});
        assert_eq!(discord(&embed).len(), 3);
        let card = json!({"attachments": [{"content": {"body": [
            {"type": "TextBlock", "text": "T", "weight": "Bolder"}, {"type": "TextBlock", "text": "B"}],
            "actions": [{"title": "Open", "url": "https://a.example"}]}}]});
        assert_eq!(teams(&card).len(), 3);
    }

    #[test]
    fn an_open_angle_bracket_is_shown_as_it_is() {
        assert_eq!(slack_text("a < b <c"), "a < b <c");
    }
}
