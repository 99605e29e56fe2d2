//! A message's content as the JSON that ntfy publishes. Pure.

use postrider_core::model::class::Urgency;
use postrider_core::model::content::Content;
use serde_json::{Map, Value, json};

use super::{NtfyContent, NtfyDraft};

/// Everything but the topic and the priority of the class: the channel's own fields, or else title, body and link.
/// Without a body, the title or the link is the message.
pub(super) fn draft(content: &Content<'_>, own: NtfyContent<'_>) -> NtfyDraft {
    let body = content.body.clone().filter(|text| !text.is_empty());
    let title = content.title.clone().filter(|text| !text.is_empty());
    let url = content.url.clone().filter(|text| !text.is_empty());
    let (message, title) = match own.message.or(body) {
        Some(message) => (message, own.title.or(title)),
        None => (title.or_else(|| url.clone()).unwrap_or_default(), own.title),
    };
    let optional = [
        ("title", title.map(|text| json!(text))),
        ("priority", own.priority.map(Value::from)),
        ("tags", own.tags.map(Value::from)),
        ("click", own.click.or(url).map(|text| json!(text))),
        ("markdown", own.markdown.map(Value::from)),
        ("icon", own.icon.map(|text| json!(text))),
        ("attach", own.attach.map(|text| json!(text))),
        ("actions", own.actions.map(|actions| json!(actions))),
    ];
    let mut fields = Map::from_iter([("message".to_owned(), json!(message))]);
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    NtfyDraft { message: message.into_owned(), fields }
}

/// The body of a call to this topic.
pub(super) fn body(topic: &str, urgency: Urgency, draft: &NtfyDraft) -> String {
    let mut fields = draft.fields.clone();
    fields.insert("topic".to_owned(), topic.into());
    fields.entry("priority").or_insert_with(|| priority(urgency).into());
    Value::Object(fields).to_string()
}

fn priority(urgency: Urgency) -> u8 {
    match urgency {
        Urgency::VeryLow => 1,
        Urgency::Low => 2,
        Urgency::Normal => 3,
        Urgency::High => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(urgency: Urgency, content: &Value) -> Value {
        let content = content.to_string();
        let content = Content::parse(&content).unwrap();
        let draft = draft(&content, NtfyContent::of(&content).unwrap());
        serde_json::from_str(&body("shop", urgency, &draft)).unwrap()
    }

    #[test]
    fn the_common_fields_are_title_message_and_click() {
        let url = "https://a.example";
        let all = json!({"title": "Shipped", "body": "Order 91", "url": url});
        let expected = json!({"topic": "shop", "title": "Shipped", "message": "Order 91",
            "click": url, "priority": 3});
        assert_eq!(sent(Urgency::Normal, &all), expected);
        let title = json!({"topic": "shop", "message": "Shipped", "priority": 3});
        assert_eq!(sent(Urgency::Normal, &json!({"title": "Shipped", "body": ""})), title);
        let link = json!({"topic": "shop", "message": url, "click": url, "priority": 3});
        assert_eq!(sent(Urgency::Normal, &json!({"url": url})), link);
    }

    #[test]
    fn the_channel_s_own_fields_are_sent_as_they_are() {
        let own = json!({"message": "**Hi**", "title": "T", "priority": 4, "tags": ["tada"],
            "click": "https://b.example", "markdown": true, "icon": "https://b.example/i.png",
            "attach": "https://b.example/a.pdf",
            "actions": [{"action": "view", "label": "Open", "url": "https://b.example"}]});
        let mut expected = own.clone();
        expected["topic"] = "shop".into();
        let content = json!({"title": "x", "body": "y", "url": "https://a.example", "ntfy": own});
        assert_eq!(sent(Urgency::High, &content), expected);
    }

    #[test]
    fn the_class_gives_the_priority() {
        let given = [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High]
            .map(|urgency| sent(urgency, &json!({"body": "x"}))["priority"].clone());
        assert_eq!(given, [1, 2, 3, 5]);
    }
}
