//! Renders the common content for each chat service. The text cannot become markup or a mention.

use std::borrow::Cow;

use postrider_core::model::content::Content;
use serde_json::{Value, json};

use super::ChatService;

/// The limits of each service. Longer text is cut off, because the service would refuse the message.
const SLACK_TEXT_MAX: usize = 3_000;
const SLACK_TITLE_MAX: usize = 500;
const DISCORD_TITLE_MAX: usize = 256;
const DISCORD_TEXT_MAX: usize = 4_096;
/// Bytes of JSON. With these, body, title, link and card together keep Teams' limit.
const TEAMS_BODY_BYTES_MAX: usize = 20_000;
const TEAMS_TITLE_BYTES_MAX: usize = 2_000;
const LINK_BYTES_MAX: usize = 2_048;

pub(crate) fn render(service: ChatService, content: &Content<'_>) -> Value {
    match service {
        ChatService::Slack | ChatService::Other => slack(content),
        ChatService::Discord => discord(content),
        ChatService::Teams => teams(content),
    }
}

fn slack(content: &Content<'_>) -> Value {
    let title = said(&content.title).map(|title| {
        let title = slack_escape(title).replace('*', "∗").replace('\n', " ");
        format!("*{}*", cut_escaped(&title, SLACK_TITLE_MAX))
    });
    let link = match (link(content), said(&content.url)) {
        (Some(url), _) => Some(format!("<{}>", slack_escape(url))),
        (None, url) => url.map(slack_escape),
    };
    // A long body is cut to keep the whole link.
    let around: usize = [&title, &link].into_iter().flatten().map(|part| units(part) + 1).sum();
    let body = said(&content.body)
        .map(|body| cut_escaped(&slack_escape(body), SLACK_TEXT_MAX.saturating_sub(around)));
    let parts: Vec<String> = [title, body, link].into_iter().flatten().collect();
    json!({ "text": parts.join("\n") })
}

/// The text, if it is not empty.
fn said<'a>(text: &'a Option<Cow<'_, str>>) -> Option<&'a str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// Escapes the three characters that Slack names, so that `<!channel>` and `<@U1>` mention nobody.
fn slack_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn discord(content: &Content<'_>) -> Value {
    let mut embed = serde_json::Map::new();
    let (title, link) = (said(&content.title), link(content));
    if let Some(title) = title {
        embed.insert("title".into(), cut(title, DISCORD_TITLE_MAX).into());
    }
    // The title is the link. Without a title, or if it cannot be a link, the URL is written into the text.
    let beside = said(&content.url).filter(|_| title.is_none() || link.is_none());
    let room = DISCORD_TEXT_MAX.saturating_sub(beside.map_or(0, |url| units(url) + 1));
    let body = said(&content.body).map(|body| cut(body, room));
    let text: Vec<&str> = body.as_deref().into_iter().chain(beside).collect();
    if !text.is_empty() {
        embed.insert("description".into(), text.join("\n").into());
    }
    if let Some(url) = link {
        embed.insert("url".into(), url.into());
    }
    // A name in the text mentions nobody.
    json!({ "embeds": [embed], "allowed_mentions": { "parse": [] } })
}

fn teams(content: &Content<'_>) -> Value {
    let block = |text: &str, heading: bool| {
        let max = if heading { TEAMS_TITLE_BYTES_MAX } else { TEAMS_BODY_BYTES_MAX };
        let text = cut_json(&text.replace("\r\n", "\n").replace('\n', "\n\n"), max);
        let mut block = json!({ "type": "TextBlock", "text": text, "wrap": true });
        if heading {
            block["size"] = "Large".into();
            block["weight"] = "Bolder".into();
        }
        block
    };
    let (title, body, link) = (said(&content.title), said(&content.body), link(content));
    // A card with only a button shows no text.
    let is_bare = title.is_none() && body.is_none();
    let url = said(&content.url).filter(|_| is_bare || link.is_none());
    let rest = [body, url].into_iter().flatten().map(|text| block(text, false));
    let blocks: Vec<Value> =
        title.map(|title| block(title, true)).into_iter().chain(rest).collect();
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    });
    if let Some(url) = link {
        card["actions"] = json!([{ "type": "Action.OpenUrl", "title": "Open", "url": url }]);
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": card,
        }],
    })
}

/// The URL, if it can be a link. A service refuses the whole message for an invalid link.
fn link<'a>(content: &'a Content<'_>) -> Option<&'a str> {
    let url = content.url.as_deref().filter(|url| url.len() <= LINK_BYTES_MAX)?;
    let (scheme, _) = url.split_once("://")?;
    let known = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    (known && url::Url::parse(url).is_ok()).then_some(url)
}

/// Cuts the text to at most so many bytes of JSON.
fn cut_json(text: &str, max: usize) -> String {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        bytes += match c {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            c if c.is_control() => 6,
            c => c.len_utf8(),
        };
        bytes > max
    });
    end.map_or_else(|| text.to_owned(), |(at, _)| format!("{}…", &text[..at]))
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Like [`cut`], for text with entities, which are not split.
fn cut_escaped(text: &str, max: usize) -> String {
    let mut kept = cut(text, max);
    if kept.len() < text.len() {
        let torn = kept.rfind('&').filter(|at| !kept[*at..].contains(';'));
        if let Some(at) = torn {
            kept.truncate(at);
            kept.push('…');
        }
    }
    kept
}

/// Cuts the text to at most so many UTF-16 units, which these services count. Cuts between characters.
fn cut(text: &str, max: usize) -> String {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > max
    });
    let Some((at, _)) = end else { return text.to_owned() };
    let mut kept = text[..at].to_owned();
    kept.pop();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &str =
        r#"{"title":"Ship * it","body":"<!channel> & @everyone","url":"https://a.example/x"}"#;

    fn rendered(service: ChatService) -> Value {
        render(service, &Content::parse(CONTENT).unwrap())
    }

    #[test]
    fn slack_gets_text_in_which_nobody_is_called() {
        assert_eq!(
            rendered(ChatService::Slack)["text"],
            "*Ship ∗ it*\n&lt;!channel&gt; &amp; @everyone\n<https://a.example/x>"
        );
    }

    #[test]
    fn discord_gets_an_embed_and_no_mention() {
        let message = rendered(ChatService::Discord);
        assert_eq!(message["embeds"][0]["title"], "Ship * it");
        assert_eq!(message["embeds"][0]["description"], "<!channel> & @everyone");
        assert_eq!(message["embeds"][0]["url"], "https://a.example/x");
        assert_eq!(message["allowed_mentions"]["parse"], json!([]));
    }

    #[test]
    fn teams_gets_a_card_with_a_button() {
        let card = &rendered(ChatService::Teams)["attachments"][0]["content"];
        assert_eq!(card["body"][0]["text"], "Ship * it");
        assert_eq!(card["actions"][0]["url"], "https://a.example/x");
    }

    #[test]
    fn nothing_that_is_rendered_is_more_than_the_service_takes() {
        for letter in ["x", "\\u0001", "\\n", "\\\"", "😀", "ü"] {
            let long = letter.repeat(30_000);
            let json =
                format!(r#"{{"title":"{long}","body":"{long}","url":"https://a.example/"}}"#);
            let content = Content::parse(&json).unwrap();
            for service in [ChatService::Slack, ChatService::Discord, ChatService::Teams] {
                let sent = render(service, &content);
                let flaw = super::super::flaw(service, &sent, sent.to_string().len());
                assert_eq!(flaw, None, "{service:?} {letter}");
            }
        }
        let odd = Content::parse(r#"{"body":"x","url":"orders/91"}"#).unwrap();
        assert!(render(ChatService::Discord, &odd)["embeds"][0].get("url").is_none());
        assert!(
            render(ChatService::Teams, &odd)["attachments"][0]["content"].get("actions").is_none()
        );
    }

    #[test]
    fn a_link_is_never_lost_or_cut_off() {
        let url = "https://a.example/x";
        let long = "<".repeat(5_000);
        let all = [
            json!({"title": "t", "body": long, "url": url}),
            json!({"body": "b", "url": url}),
            json!({"title": "t", "url": url}),
            json!({"url": url}),
            json!({"title": "t", "body": "b", "url": "shop://orders/91"}),
        ];
        for content in all {
            let text = content.to_string();
            let parsed = Content::parse(&text).unwrap();
            let url = parsed.url.as_deref().unwrap();
            let slack = render(ChatService::Slack, &parsed)["text"].as_str().unwrap().to_owned();
            assert!(units(&slack) <= SLACK_TEXT_MAX && slack.contains(url), "{slack}");
            assert!(slack.matches('&').count() == slack.matches("&lt;").count(), "torn: {slack}");
            let embed = render(ChatService::Discord, &parsed)["embeds"][0].clone();
            let clicked = embed["title"].is_string() && embed["url"] == url;
            let written = embed["description"].as_str().is_some_and(|text| text.ends_with(url));
            assert!(clicked || written, "{embed}");
            let card = render(ChatService::Teams, &parsed)["attachments"][0]["content"].clone();
            assert!(card.to_string().contains(url), "{card}");
            assert!(!card["body"].as_array().unwrap().is_empty(), "{card}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut(&"😀".repeat(4), 5).chars().count(), 2);
    }
}
