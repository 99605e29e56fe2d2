//! The common content as each chat service shows it best. Pure. Text of ours never becomes markup or
//! a mention of theirs.

use std::borrow::Cow;

use postrider_core::model::content::Content;
use serde_json::{Value, json};

use super::Flavour;

/// What each service takes; the rest is cut off, because a refused notification helps nobody.
const SLACK_TEXT_MAX: usize = 3_000;
const SLACK_TITLE_MAX: usize = 500;
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
    let title = said(&content.title).map(|title| {
        let title = slack_escape(title).replace('*', "∗").replace('\n', " ");
        format!("*{}*", cut_escaped(&title, SLACK_TITLE_MAX))
    });
    let link = match (link(content), said(&content.url)) {
        (Some(url), _) => Some(format!("<{}>", slack_escape(url))),
        (None, url) => url.map(slack_escape),
    };
    // A long body makes room for the rest: half a link leads nowhere.
    let around: usize = [&title, &link].into_iter().flatten().map(|part| units(part) + 1).sum();
    let body = said(&content.body)
        .map(|body| cut_escaped(&slack_escape(body), SLACK_TEXT_MAX.saturating_sub(around)));
    let parts: Vec<String> = [title, body, link].into_iter().flatten().collect();
    json!({ "text": parts.join("\n") })
}

/// What there is of a text.
fn said<'a>(text: &'a Option<Cow<'_, str>>) -> Option<&'a str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The three characters that Slack asks to escape: with them go `<!channel>` and `<@U1>`.
fn slack_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn discord(content: &Content<'_>) -> Value {
    let mut embed = serde_json::Map::new();
    let (title, link) = (said(&content.title), link(content));
    if let Some(title) = title {
        embed.insert("title".into(), cut(title, DISCORD_TITLE_MAX).into());
    }
    // It is the title that one clicks on. Without one, or where it is no link, it is written out.
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
    let (title, body, link) = (said(&content.title), said(&content.body), link(content));
    // A card of nothing but a button says nothing.
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

/// What can be clicked: a service refuses the whole message for a link that is none.
fn link<'a>(content: &'a Content<'_>) -> Option<&'a str> {
    let url = content.url.as_deref().filter(|url| url.len() <= LINK_BYTES_MAX)?;
    let (scheme, _) = url.split_once("://")?;
    let known = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    (known && url::Url::parse(url).is_ok()).then_some(url)
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

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The same for text with entities in it, none of which is torn apart.
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
            let slack = render(Flavour::Slack, &parsed)["text"].as_str().unwrap().to_owned();
            assert!(units(&slack) <= SLACK_TEXT_MAX && slack.contains(url), "{slack}");
            assert!(slack.matches('&').count() == slack.matches("&lt;").count(), "torn: {slack}");
            let embed = render(Flavour::Discord, &parsed)["embeds"][0].clone();
            let clicked = embed["title"].is_string() && embed["url"] == url;
            let written = embed["description"].as_str().is_some_and(|text| text.ends_with(url));
            assert!(clicked || written, "{embed}");
            let card = render(Flavour::Teams, &parsed)["attachments"][0]["content"].clone();
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
