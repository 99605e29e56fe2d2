//! Renders content as one short text.

use std::borrow::Cow;

use postrider_core::model::content::Content;

use super::SmsContent;

/// The text for text messages, else title, body and link in one line each.
pub fn render<'a>(content: &'a Content<'a>, own: SmsContent<'a>) -> Cow<'a, str> {
    if let Some(text) = own.text {
        return text;
    }
    let parts = [content.title.as_deref(), content.body.as_deref(), content.url.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => "".into(),
        [one] => Cow::Borrowed(one),
        several => several.join("\n").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        let content = Content::parse(json).unwrap();
        render(&content, SmsContent::of(&content).unwrap()).into_owned()
    }

    #[test]
    fn the_common_fields_are_one_text_and_an_own_text_wins() {
        let json = r#"{"title":"Shipped","body":"Order 91","url":"https://a.example"}"#;
        assert_eq!(text(json), "Shipped\nOrder 91\nhttps://a.example");
        let json = r#"{"title":"Shipped","sms":{"text":"Hi"}}"#;
        assert_eq!(text(json), "Hi");
    }
}
