//! The plaintext of a push: the caller's own text byte for byte, or our JSON. Our JSON has times in it, so that a
//! service worker can drop what is too old.

use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::{Attempt, DeliveryId, Timestamp};
use serde::Serialize;

use super::{KIND, WebpushContent};
use crate::ReceiptLinks;
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
    /// Where the service worker reports what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// What the URL for receipts takes beside itself, as a field of JSON.
const RECEIPT_FIELD_LEN: usize = ",\"receipt\":\"\"".len();

/// The plaintext of one attempt; empty for a push without a body. What was accepted before there was a URL for receipts
/// goes without one if there is no room for it.
pub(super) fn render(
    attempt: &Attempt,
    now: Timestamp,
    receipts: Option<&Arc<dyn ReceiptLinks>>,
) -> Result<Vec<u8>, Ended> {
    let (content, own) = content_of(KIND, &attempt.message)?;
    let render = |receipt: Option<String>| {
        let times = (now, attempt.expires_at);
        plaintext(&content, &own, attempt.delivery, times, receipt).map_err(bad_content)
    };
    let Some(receipts) = receipts.filter(|_| own.raw.is_none()) else { return render(None) };
    let text = render(Some(receipts.link(attempt.delivery, attempt.expires_at)))?;
    if text.len() <= PLAINTEXT_MAX { Ok(text) } else { render(None) }
}

/// The length of the plaintext. It does not depend on the delivery or the time.
pub(crate) fn plaintext_len(
    content: &Content<'_>,
    own: &WebpushContent<'_>,
    receipts: Option<&Arc<dyn ReceiptLinks>>,
) -> usize {
    let stamp = Timestamp(1_000_000_000_000);
    let text = plaintext(content, own, DeliveryId(0), (stamp, stamp), None);
    let receipts = receipts.filter(|_| own.raw.is_none());
    let receipt = receipts.map_or(0, |receipts| RECEIPT_FIELD_LEN + receipts.link_len());
    text.map_or(usize::MAX, |text| text.len() + receipt)
}

fn plaintext(
    content: &Content<'_>,
    own: &WebpushContent<'_>,
    id: DeliveryId,
    (sent_at, expires_at): (Timestamp, Timestamp),
    receipt: Option<String>,
) -> Result<Vec<u8>, serde_json::Error> {
    if let Some(raw) = &own.raw {
        return Ok(raw.as_bytes().to_vec());
    }
    let (sent_at, expires_at) = (sent_at.0, expires_at.0);
    serde_json::to_vec(&WebpushPayload { id, common: content, sent_at, expires_at, receipt })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const THEN: Timestamp = Timestamp(1_800_000_060_000);

    struct FixedLinks;

    impl ReceiptLinks for FixedLinks {
        fn link(&self, _: DeliveryId, _: Timestamp) -> String {
            "https://push.example/v1/receipts/abc".to_owned()
        }

        fn link_len(&self) -> usize {
            36
        }

        fn callback(&self, _: &str, _: DeliveryId, _: Timestamp) -> String {
            unreachable!("a push service calls nobody")
        }
    }

    fn text(content: &str) -> String {
        let content = Content::parse(content).unwrap();
        let own = WebpushContent::of(&content).unwrap();
        let bytes = plaintext(&content, &own, DeliveryId(1), (NOW, THEN), None).unwrap();
        assert_eq!(bytes.len(), plaintext_len(&content, &own, None));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_url_for_receipts_is_counted_and_not_added_to_raw_text() {
        let links: Arc<dyn ReceiptLinks> = Arc::new(FixedLinks);
        for (content, has_link) in
            [(r#"{"title":"Hi"}"#, true), (r#"{"webpush":{"raw":"Hi"}}"#, false)]
        {
            let content = Content::parse(content).unwrap();
            let own = WebpushContent::of(&content).unwrap();
            let link = has_link.then(|| links.link(DeliveryId(1), THEN));
            let bytes = plaintext(&content, &own, DeliveryId(1), (NOW, THEN), link).unwrap();
            assert_eq!(bytes.len(), plaintext_len(&content, &own, Some(&links)));
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(text.contains(r#""receipt":"https://push.example/"#), has_link, "{text}");
        }
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
