//! The common content as each chat service shows it best. Pure. Text of ours never becomes markup or
//! a mention of theirs.

use postrider_core::content::Content;
use serde_json::{Value, json};

use super::Flavour;

/// What each service takes; the rest is cut off, because a refused notification helps nobody.
const SLACK_TEXT_MAX: usize = 3_000;
const DISCORD_TITLE_MAX: usize = 256;
const DISCORD_TEXT_MAX: usize = 4_096;
/// Of the JSON that a text becomes: body and title, the link and the card fit into what Teams takes.
const TEAMS_BODY_BYTES_MAX: usize = 20_000;
const TEAMS_TITLE_BYTES_MAX: usize = 2_000;
const LINK_BYTES_MAX: usize = 2_048;

pub(crate) fn render(flavour: Flavour, content: &Content<'_>) -> Value {
    match flavour {
        Flavour::Slack | Flavour::Other => slack(content),
        Flavour::Discord => discord(content),
        Flavour::Teams => teams(content),
    }
}

fn slack(content: &Content<'_>) -> Value {
    let mut parts = Vec::with_capacity(3);
    if let Some(title) = content.title.as_deref().filter(|title| !title.is_empty()) {
        parts.push(format!("*{}*", slack_escape(title).replace('*', "∗").replace('\n', " ")));
    }
    parts.extend(content.body.as_deref().map(slack_escape));
    parts.extend(content.url.as_deref().map(|url| format!("<{}>", slack_escape(url))));
    json!({ "text": cut(&parts.join("\n"), SLACK_TEXT_MAX) })
}

/// The three characters that Slack asks to escape: with them go `<!channel>` and `<@U1>`.
fn slack_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn discord(content: &Content<'_>) -> Value {
    let mut embed = serde_json::Map::new();
    if let Some(title) = content.title.as_deref().filter(|title| !title.is_empty()) {
        embed.insert("title".into(), cut(title, DISCORD_TITLE_MAX).into());
    }
    let text = content.body.as_deref().filter(|body| !body.is_empty());
    if let Some(text) = text.or(content.url.as_deref().filter(|_| content.title.is_none())) {
        embed.insert("description".into(), cut(text, DISCORD_TEXT_MAX).into());
    }
    if let Some(url) = link(content) {
        embed.insert("url".into(), url.into());
    }
    // Nobody is called by name because a text happens to hold one.
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
    let title = content.title.as_deref().map(|title| block(title, true));
    let body = content.body.as_deref().map(|body| block(body, false));
    let blocks: Vec<Value> = title.into_iter().chain(body).collect();
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    });
    if let Some(url) = link(content) {
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

/// What can be clicked: a service refuses the whole message for a link that is none.
fn link<'a>(content: &'a Content<'_>) -> Option<&'a str> {
    let url = content.url.as_deref().filter(|url| url.len() <= LINK_BYTES_MAX)?;
    let parsed = url::Url::parse(url).ok()?;
    matches!(parsed.scheme(), "https" | "http").then_some(url)
}

/// At most so many bytes of JSON.
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

/// At most so many UTF-16 units, which is how these services count; cut between characters.
fn cut(text: &str, max: usize) -> String {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > max
    });
    match end {
        None => text.to_owned(),
        Some((at, _)) => {
            let mut kept = text[..at].to_owned();
            kept.pop();
            format!("{kept}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &str =
        r#"{"title":"Ship * it","body":"<!channel> & @everyone","url":"https://a.example/x"}"#;

    fn rendered(flavour: Flavour) -> Value {
        render(flavour, &Content::parse(CONTENT).unwrap())
    }

    #[test]
    fn slack_gets_text_in_which_nobody_is_called() {
        assert_eq!(
            rendered(Flavour::Slack)["text"],
            "*Ship ∗ it*\n&lt;!channel&gt; &amp; @everyone\n<https://a.example/x>"
        );
    }

    #[test]
    fn discord_gets_an_embed_and_no_mention() {
        let message = rendered(Flavour::Discord);
        assert_eq!(message["embeds"][0]["title"], "Ship * it");
        assert_eq!(message["embeds"][0]["description"], "<!channel> & @everyone");
        assert_eq!(message["embeds"][0]["url"], "https://a.example/x");
        assert_eq!(message["allowed_mentions"]["parse"], json!([]));
    }

    #[test]
    fn teams_gets_a_card_with_a_button() {
        let card = &rendered(Flavour::Teams)["attachments"][0]["content"];
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
            for flavour in [Flavour::Slack, Flavour::Discord, Flavour::Teams] {
                let sent = render(flavour, &content);
                let flaw = super::super::flaw(flavour, &sent, sent.to_string().len());
                assert_eq!(flaw, None, "{flavour:?} {letter}");
            }
        }
        let odd = Content::parse(r#"{"body":"x","url":"orders/91"}"#).unwrap();
        assert!(render(Flavour::Discord, &odd)["embeds"][0].get("url").is_none());
        assert!(render(Flavour::Teams, &odd)["attachments"][0]["content"].get("actions").is_none());
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut(&"😀".repeat(4), 5).chars().count(), 2);
    }
}
