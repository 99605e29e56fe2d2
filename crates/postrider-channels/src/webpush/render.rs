//! The plaintext of a push: the caller's own text byte for byte, or our JSON. Our JSON has times in it, so that a
//! service worker can drop what is too old.

use postrider_core::model::content::Content;
use postrider_core::{Attempt, DeliveryId, Timestamp};
use serde::Serialize;

use super::{KIND, WebpushContent};
use crate::deliver::{Ended, bad_content, content_of};

/// What fits into the 4096 bytes that every push service takes, after 103 bytes of encryption.
pub(crate) const PLAINTEXT_MAX: usize = 3993;

#[derive(Serialize)]
struct WebpushPayload<'a> {
    id: DeliveryId,
    #[serde(flatten)]
    common: &'a Content<'a>,
    /// Milliseconds since the epoch, like `expires_at`.
    sent_at: i64,
    expires_at: i64,
}

/// The plaintext of one attempt; empty for a push without a body.
pub(super) fn render(attempt: &Attempt, now: Timestamp) -> Result<Vec<u8>, Ended> {
    let (content, own) = content_of(KIND, &attempt.message)?;
    plaintext(&content, &own, attempt.delivery, now, attempt.expires_at).map_err(bad_content)
}

/// The length of the plaintext. It does not depend on the delivery or the time.
pub(crate) fn plaintext_len(content: &Content<'_>, own: &WebpushContent<'_>) -> usize {
    let stamp = Timestamp(1_000_000_000_000);
    plaintext(content, own, DeliveryId(0), stamp, stamp).map_or(usize::MAX, |text| text.len())
}

fn plaintext(
    content: &Content<'_>,
    own: &WebpushContent<'_>,
    id: DeliveryId,
    sent_at: Timestamp,
    expires_at: Timestamp,
) -> Result<Vec<u8>, serde_json::Error> {
    if let Some(raw) = &own.raw {
        return Ok(raw.as_bytes().to_vec());
    }
    let (sent_at, expires_at) = (sent_at.0, expires_at.0);
    serde_json::to_vec(&WebpushPayload { id, common: content, sent_at, expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const THEN: Timestamp = Timestamp(1_800_000_060_000);

    fn text(content: &str) -> String {
        let content = Content::parse(content).unwrap();
        let own = WebpushContent::of(&content).unwrap();
        let bytes = plaintext(&content, &own, DeliveryId(1), NOW, THEN).unwrap();
        assert_eq!(bytes.len(), plaintext_len(&content, &own));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn only_what_is_there_is_rendered_and_stamped() {
        assert_eq!(
            text(r#"{"title":"Hi \"you\"","data":{"a": [1]}}"#),
            r#"{"id":"dlv_00000000000000000000000001","title":"Hi \"you\"","data":{"a": [1]},"sent_at":1800000000000,"expires_at":1800000060000}"#
        );
    }

    #[test]
    fn raw_text_wins_and_goes_byte_for_byte() {
        assert_eq!(text(r#"{"title":"no","webpush":{"raw":" {\"x\":\u00fc}\n"}}"#), " {\"x\":ü}\n");
        assert_eq!(text(r#"{"webpush":{"raw":""}}"#), "");
    }
}
