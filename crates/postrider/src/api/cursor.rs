//! Cursors of lists. To callers they are texts without a meaning: what a list is ordered by may change.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::parameters::quoted;
use super::problem::{ApiResult, Problem};

/// The first byte of a cursor: its form.
const FORM: u8 = 1;
const LENGTH_MAX: usize = 256;

/// Where the next page starts.
pub(crate) fn encode(place: &impl Display) -> String {
    let mut bytes = vec![FORM];
    bytes.extend_from_slice(place.to_string().as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The text that a cursor stands for; `None` if it is no cursor. For the fuzzer.
pub fn read_cursor(text: &str) -> Option<String> {
    decode(Some(text), |place| Some(place.to_owned())).ok().flatten()
}

/// The place that a cursor stands for.
pub(crate) fn decode<T>(
    cursor: Option<&str>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> ApiResult<Option<T>> {
    let Some(text) = cursor else { return Ok(None) };
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(text.get(..LENGTH_MAX).unwrap_or(text)).ok()?;
        let (form, place) = bytes.split_first()?;
        parse(std::str::from_utf8(place).ok().filter(|_| *form == FORM)?)
    };
    let wrong = || Problem::field("cursor", quoted(text), "the `next` of the page before");
    read().map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_and_shows_nothing() {
        let cursor = encode(&"dlv_123");
        assert!(!cursor.contains("dlv") && !cursor.contains("123"), "{cursor}");
        let read = |text: &str| decode(Some(text), |place| Some(place.to_owned()));
        assert_eq!(read(&cursor).unwrap().as_deref(), Some("dlv_123"));
        for wrong in ["dlv_123", "", "!", "AgEB", &"A".repeat(9_999)] {
            let problem = read(wrong).unwrap_err();
            assert_eq!((problem.status, &*problem.errors[0].field), (422, "cursor"), "{wrong}");
        }
        assert_eq!(decode(None, |_| Some(())).unwrap(), None);
    }
}
