//! A message's content as one short text.

use std::borrow::Cow;

use postrider_core::model::content::Content;

/// What was written for text messages, else title, body and link in one line each.
pub fn render<'a>(content: &'a Content<'a>) -> Cow<'a, str> {
    if let Some(text) = content.sms.as_ref().and_then(|own| own.text.as_deref()) {
        return text.into();
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

    #[test]
    fn the_common_fields_are_one_text_and_an_own_text_wins() {
        let json = r#"{"title":"Shipped","body":"Order 91","url":"https://a.example"}"#;
        assert_eq!(render(&Content::parse(json).unwrap()), "Shipped\nOrder 91\nhttps://a.example");
        let json = r#"{"title":"Shipped","sms":{"text":"Hi"}}"#;
        assert_eq!(render(&Content::parse(json).unwrap()), "Hi");
    }
}
