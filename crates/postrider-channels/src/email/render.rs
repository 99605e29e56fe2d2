//! Renders content as subject, text and HTML of a mail. The fields for mails win over the common fields.

use std::borrow::Cow;
use std::fmt::Write;

use postrider_core::model::content::Content;

use super::EmailContent;
use super::plain::to_text;

/// The longest subject that is made from a body.
const SUBJECT_MAX: usize = 78;
const UNTITLED: &str = "(no subject)";

#[derive(Debug, PartialEq, Eq)]
pub struct RenderedEmail<'a> {
    pub subject: Cow<'a, str>,
    pub text: Cow<'a, str>,
    pub html: Option<Cow<'a, str>>,
}

pub fn render<'a>(content: &'a Content<'a>, own: &'a EmailContent<'a>) -> RenderedEmail<'a> {
    let (text, html) = (own.text.as_ref(), own.html.as_ref());
    RenderedEmail {
        subject: match own.subject.as_ref().or(content.title.as_ref()) {
            Some(subject) => Cow::Borrowed(&**subject),
            None => first_line(content),
        },
        text: match (text, html) {
            (Some(text), _) => Cow::Borrowed(&**text),
            (None, Some(html)) if content.body.is_none() => to_text(html).into(),
            (None, _) => common_text(content),
        },
        html: match (html, text) {
            (Some(html), _) => Some(Cow::Borrowed(&**html)),
            // A caller who wrote only text gets only text.
            (None, Some(_)) => None,
            (None, None) => Some(common_html(content).into()),
        },
    }
}

fn first_line<'a>(content: &'a Content<'a>) -> Cow<'a, str> {
    let line = content.body.as_deref().and_then(|body| body.lines().find(|l| !l.trim().is_empty()));
    let Some(line) = line.map(str::trim) else { return UNTITLED.into() };
    match line.char_indices().nth(SUBJECT_MAX) {
        None => line.into(),
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()).into(),
    }
}

fn common_text<'a>(content: &'a Content<'a>) -> Cow<'a, str> {
    let body = content.body.as_deref().or(content.title.as_deref()).unwrap_or_default();
    match content.url.as_deref() {
        None => body.into(),
        Some(url) if body.is_empty() => url.into(),
        Some(url) => format!("{body}\n\n{url}").into(),
    }
}

fn common_html(content: &Content<'_>) -> String {
    let mut html =
        String::from("<!doctype html>\n<html><head><meta charset=\"utf-8\"></head>\n<body>\n");
    if let Some(title) = content.title.as_deref() {
        let _ = writeln!(html, "<h1 style=\"font-size:1.3em\">{}</h1>", escape(title));
    }
    let body = content.body.as_deref().unwrap_or_default().replace("\r\n", "\n");
    for paragraph in body.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let _ = writeln!(html, "<p>{}</p>", escape(paragraph.trim()).replace('\n', "<br>\n"));
    }
    if let Some(url) = content.url.as_deref() {
        // A path or an app's own scheme does not work as a link in a mail.
        let is_link = url.starts_with("https://") || url.starts_with("http://");
        let url = escape(url);
        let _ = match is_link {
            true => writeln!(html, "<p><a href=\"{url}\">{url}</a></p>"),
            false => writeln!(html, "<p>{url}</p>"),
        };
    }
    html.push_str("</body></html>\n");
    html
}

/// Escapes text for HTML, between tags and in quotes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> (Content<'_>, EmailContent<'_>) {
        let content = Content::parse(json).unwrap();
        let own = EmailContent::of(&content).unwrap();
        (content, own)
    }

    #[test]
    fn common_fields_become_text_and_html() {
        let json = r#"{"title":"Shipped <soon>","body":"Order 91\nis on its way\n\nBye","url":"https://shop.example/?a=1&b=2"}"#;
        let (content, own) = parsed(json);
        let mail = render(&content, &own);
        assert_eq!(mail.subject, "Shipped <soon>");
        assert_eq!(mail.text, "Order 91\nis on its way\n\nBye\n\nhttps://shop.example/?a=1&b=2");
        let html = mail.html.unwrap();
        assert!(html.contains("Shipped &lt;soon&gt;</h1>"), "{html}");
        assert!(html.contains("<p>Order 91<br>\nis on its way</p>\n<p>Bye</p>"), "{html}");
        assert!(html.contains(r#"<a href="https://shop.example/?a=1&amp;b=2">"#), "{html}");
    }

    #[test]
    fn what_was_written_for_mails_wins_and_text_alone_stays_alone() {
        let json = r#"{"title":"no","body":"no","email":{"subject":"S","text":"T"}}"#;
        let (content, own) = parsed(json);
        let expected = RenderedEmail { subject: "S".into(), text: "T".into(), html: None };
        assert_eq!(render(&content, &own), expected);
    }

    #[test]
    fn html_alone_gets_a_text_beside_it() {
        let json = r#"{"title":"S","email":{"html":"<head><style>p{}</style></head><p>Hello <b>Ada</b>,</p><p>5 &lt; 6<br>bye</p>"}}"#;
        let (content, own) = parsed(json);
        assert_eq!(render(&content, &own).text, "Hello Ada,\n\n5 < 6\nbye");
    }

    #[test]
    fn a_mail_always_has_a_subject() {
        let (content, own) = parsed(r#"{"body":"\n  First line\nsecond"}"#);
        assert_eq!(render(&content, &own).subject, "First line");
        let long = format!(r#"{{"body":"{}"}}"#, "ü".repeat(100));
        let (content, own) = parsed(&long);
        assert_eq!(render(&content, &own).subject.chars().count(), SUBJECT_MAX + 1);
        assert_eq!(render(&Content::default(), &EmailContent::default()).subject, UNTITLED);
    }
}
