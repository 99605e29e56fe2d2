//! What a message says: common fields that every channel renders, and per channel a part of its own
//! that wins. Kept as JSON text; parsed by borrowing when it is needed. Knows no channel's part.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::channel::ChannelKind;
use crate::model::json_fields;
use crate::ports::channel::FieldError;

/// The fields that every channel renders.
pub const COMMON_FIELDS: [&str; 4] = ["title", "body", "url", "data"];

/// A message's content, borrowing from its JSON text. Serialized without the channels' own parts.
#[derive(Debug, Default, Serialize)]
pub struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    /// The channels' own parts by name, in the order in which they are written.
    #[serde(skip)]
    parts: RawParts<'a>,
    #[serde(skip)]
    has_parts: bool,
}

type RawParts<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

impl<'a> Content<'a> {
    /// For content that a [`ContentSchema`] has checked: takes any part.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The same in one pass for one channel: the common fields, and that channel's part. Other parts are
    /// skipped.
    pub fn parse_for<T: Deserialize<'a>>(
        kind: ChannelKind,
        text: &'a str,
    ) -> Result<(Self, Option<T>), serde_json::Error> {
        let mut own = OwnPart { kind, part: None };
        let mut reader = serde_json::Deserializer::from_str(text);
        let content = reader.deserialize_map(ContentVisitor(&mut own))?;
        reader.end()?;
        Ok((content, own.part))
    }

    /// A channel's own part as its own struct. Errors name fields relative to the content.
    pub fn part<T: Deserialize<'a>>(&self, kind: ChannelKind) -> Result<Option<T>, FieldError> {
        let own = self.parts.iter().find(|(name, _)| name == kind.name());
        own.map_or(Ok(None), |(_, raw)| read_part(kind, raw))
    }

    /// Whether any channel has a part of its own.
    pub fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// The common fields as JSON. A receiver never sees the channels' own parts.
    pub fn common_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The common data as a value; null where there is none.
    pub fn data_value(&self) -> Result<Value, FieldError> {
        let read = |raw: &RawValue| {
            serde_json::from_str(raw.get()).map_err(|_| {
                let found = "numbers or characters that nobody can read";
                FieldError::new("data", found, "numbers within bounds and whole characters")
            })
        };
        self.data.map_or(Ok(Value::Null), read)
    }

    /// Whether the common fields are all missing.
    pub fn is_bare(&self) -> bool {
        self.title.is_none() && self.body.is_none() && self.url.is_none() && self.data.is_none()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut parts = RawParts::new();
        let content = from.deserialize_map(ContentVisitor(&mut parts))?;
        Ok(Content { parts, ..content })
    }
}

/// Takes the channels' parts while content is read.
trait PartReader<'de> {
    /// Reads the value of the part `name`. False if it is null.
    fn read<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
    ) -> Result<bool, A::Error>;
}

impl<'de> PartReader<'de> for RawParts<'de> {
    fn read<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        if self.iter().any(|(known, _)| *known == name) {
            return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
        }
        let raw = map.next_value()?;
        self.push((name, raw));
        Ok(!is_null(raw))
    }
}

/// The part of one channel.
struct OwnPart<T> {
    kind: ChannelKind,
    part: Option<T>,
}

impl<'de, T: Deserialize<'de>> PartReader<'de> for OwnPart<T> {
    fn read<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        if name != self.kind.name() {
            return Ok(map.next_value::<Option<IgnoredAny>>()?.is_some());
        }
        self.part = map.next_value()?;
        Ok(self.part.is_some())
    }
}

struct ContentVisitor<'p, P>(&'p mut P);

impl<'de, P: PartReader<'de>> Visitor<'de> for ContentVisitor<'_, P> {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content<'de>, A::Error> {
        let mut content = Content::default();
        let mut seen = [false; COMMON_FIELDS.len()];
        while let Some(BorrowedText(name)) = map.next_key()? {
            let common = COMMON_FIELDS.iter().position(|known| *known == name);
            if common.is_some_and(|index| std::mem::replace(&mut seen[index], true)) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            match common {
                Some(0) => content.title = text(&mut map)?,
                Some(1) => content.body = text(&mut map)?,
                Some(2) => content.url = text(&mut map)?,
                Some(_) => content.data = map.next_value()?,
                None => content.has_parts |= self.0.read(name, &mut map)?,
            }
        }
        Ok(content)
    }
}

/// A text that borrows where it has no escapes. A bare `Cow` would always copy.
#[derive(Deserialize)]
#[serde(transparent)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    Ok(map.next_value::<Option<BorrowedText<'de>>>()?.map(|text| text.0))
}

/// Checks one channel's part. Errors name fields relative to the content.
pub type PartCheck = fn(&RawValue) -> Result<(), FieldError>;

/// Which parts content may have, in the order in which an error lists them, and how each is checked.
#[derive(Debug, Clone, Default)]
pub struct ContentSchema {
    parts: Vec<(ChannelKind, PartCheck)>,
}

impl ContentSchema {
    /// Content as a caller writes it. Errors name fields relative to it.
    pub fn read<'a>(&self, text: &'a str) -> Result<Content<'a>, FieldError> {
        let content: Content<'a> = json_fields::read(text, "")?;
        for (name, raw) in &content.parts {
            let known = self.parts.iter().find(|(kind, _)| kind.name() == name);
            let (_, check) = known.ok_or_else(|| self.unknown(name))?;
            check(raw)?;
        }
        Ok(content)
    }

    fn unknown(&self, name: &str) -> FieldError {
        let kinds = self.parts.iter().map(|(kind, _)| kind.name());
        let names: Vec<_> = COMMON_FIELDS.into_iter().chain(kinds).collect();
        let name: String = name.chars().take(json_fields::NAME_SHOWN_MAX).collect();
        FieldError::new(name, "unknown field", format!("one of {}", names.join(", ")))
    }
}

impl FromIterator<(ChannelKind, PartCheck)> for ContentSchema {
    fn from_iter<I: IntoIterator<Item = (ChannelKind, PartCheck)>>(parts: I) -> Self {
        Self { parts: parts.into_iter().collect() }
    }
}

/// A channel's part as its own struct; nothing for null. Errors name fields relative to the content.
pub fn read_part<'a, T: Deserialize<'a>>(
    kind: ChannelKind,
    raw: &'a RawValue,
) -> Result<Option<T>, FieldError> {
    if is_null(raw) {
        return Ok(None);
    }
    json_fields::read(raw.get(), "").map(Some).map_err(|error| error.below(kind.name()))
}

fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// A raw JSON value as the bytes of a request: a string's own text, anything else as it stands.
pub fn raw_bytes(value: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<BorrowedText<'_>>(value.get()) {
        Ok(text) => text.0,
        Err(_) => Cow::Borrowed(value.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: ChannelKind = ChannelKind::new("letter");

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct LetterContent<'a> {
        #[serde(borrow, default)]
        text: Option<Cow<'a, str>>,
        #[serde(default)]
        stamps: Option<i64>,
    }

    fn schema() -> ContentSchema {
        let check: PartCheck = |raw| read_part::<LetterContent<'_>>(LETTER, raw).map(drop);
        [(LETTER, check)].into_iter().collect()
    }

    fn wrong(text: &str) -> (String, String, String) {
        let error = schema().read(text).unwrap_err();
        (error.field, error.found, error.allowed)
    }

    fn is(field: &str, found: &str, allowed: &str) -> (String, String, String) {
        (field.to_owned(), found.to_owned(), allowed.to_owned())
    }

    #[test]
    fn a_string_payload_is_taken_byte_for_byte_and_json_as_it_stands() {
        let raw = |text: &'static str| serde_json::from_str::<&RawValue>(text).unwrap();
        assert_eq!(raw_bytes(raw(r#""{\"a\": 1}\n""#)), "{\"a\": 1}\n");
        assert_eq!(raw_bytes(raw(r#"{"a": [1,  2]}"#)), r#"{"a": [1,  2]}"#);
        assert!(matches!(raw_bytes(raw(r#""plain""#)), Cow::Borrowed("plain")));
    }

    #[test]
    fn texts_borrow_and_a_channel_reads_its_own_part() {
        let text = r#"{"title":"Hi","data":{"a": 1},"letter":{"text":"Dear"},"other":null}"#;
        let content = Content::parse(text).unwrap();
        assert!(matches!(content.title, Some(Cow::Borrowed("Hi"))));
        let own: LetterContent<'_> = content.part(LETTER).unwrap().unwrap();
        assert_eq!(own.stamps, None);
        assert_eq!(own.text.as_deref(), Some("Dear"));
        assert!(content.has_parts() && !content.is_bare());
        assert_eq!(content.common_json().unwrap(), r#"{"title":"Hi","data":{"a": 1}}"#);
        let (content, own) = Content::parse_for::<LetterContent<'_>>(LETTER, text).unwrap();
        assert_eq!(own.unwrap().text.as_deref(), Some("Dear"));
        assert!(content.has_parts() && matches!(content.title, Some(Cow::Borrowed("Hi"))));
        assert_eq!(content.common_json().unwrap(), r#"{"title":"Hi","data":{"a": 1}}"#);
        let other = r#"{"body":"x","other":{"a":[1]}}"#;
        let (content, own) = Content::parse_for::<LetterContent<'_>>(LETTER, other).unwrap();
        assert!(own.is_none() && content.has_parts());
        for wrong in [r#"{"letter":{"txt":"x"}}"#, "{} x", "[]", r#"{"body":"a","body":"b"}"#] {
            assert!(Content::parse_for::<LetterContent<'_>>(LETTER, wrong).is_err(), "{wrong}");
        }
        let null = Content::parse_for::<LetterContent<'_>>(LETTER, r#"{"letter":null}"#).unwrap();
        assert!(!null.0.has_parts() && null.1.is_none());
        let none = Content::parse(r#"{"letter":null}"#).unwrap();
        assert!(!none.has_parts() && none.part::<LetterContent<'_>>(LETTER).unwrap().is_none());
    }

    #[test]
    fn a_value_of_another_type_is_named_by_its_path_and_never_repeated() {
        assert_eq!(wrong(r#"{"title":4711}"#), is("title", "a number", "a string"));
        assert_eq!(wrong(r#"{"letter":{"text":["x"]}}"#), is("letter.text", "a list", "a string"));
        assert_eq!(wrong(r#"{"letter":"secret"}"#), is("letter", "a string", "an object"));
        assert_eq!(wrong(r#"{"letter":["x"]}"#), is("letter", "a list", "an object"));
        assert_eq!(wrong(r#"{"letter":[]}"#), is("letter", "a list", "an object"));
        assert_eq!(wrong("[]"), is("", "a list", "an object"));
        assert!(schema().read(r#"{"letter":null,"body":"x"}"#).is_ok());
    }

    #[test]
    fn unknown_and_repeated_fields_are_named() {
        let all = "one of title, body, url, data, letter";
        assert_eq!(wrong(r#"{"titel":"x"}"#), is("titel", "unknown field", all));
        assert_eq!(wrong(r#"{"titel":null}"#), is("titel", "unknown field", all));
        let (field, found, _) = wrong(r#"{"letter":{"txt":"x"}}"#);
        assert_eq!((&*field, &*found), ("letter.txt", "unknown field"));
        assert_eq!(wrong(r#"{"title":"a","title":"b"}"#), is("title", "given twice", "given once"));
        let twice = r#"{"letter":{"text":"a","text":"b"}}"#;
        assert_eq!(wrong(twice), is("letter.text", "given twice", "given once"));
        let twice = r#"{"letter":{},"letter":{}}"#;
        assert_eq!(wrong(twice), is("letter", "given twice", "given once"));
    }

    #[test]
    fn half_a_character_and_numbers_beyond_all_bounds_are_told() {
        let half = wrong(r#"{"title":"\ud800"}"#);
        assert_eq!(half.0, "title");
        assert!(half.1.starts_with("half a character"), "{}", half.1);
        assert_eq!(wrong(r#"{"title\ud800":"x"}"#).0, "");
        let (field, found, _) = wrong(r#"{"letter":{"stamps":1e999}}"#);
        assert_eq!((&*field, &*found), ("letter.stamps", "number out of range"));
    }
}
