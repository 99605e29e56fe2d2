//! A caller's trace, as its `traceparent` names it (W3C Trace Context), and the ids of the spans that we add to it.
//! They follow from the ids of messages and deliveries, so nothing has to be kept for them.

use std::fmt;

use crate::model::id::{DeliveryId, MessageId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: [u8; 16],
    /// The caller's span.
    pub span: u64,
    pub flags: u8,
}

const SAMPLED: u8 = 1;

impl TraceParent {
    /// None if the text is no `traceparent` that is valid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            (part.len() == digits && is_hex).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may have more parts.
        let has_more = parts.next().is_some();
        if version == "ff" || (version == "00" && has_more) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace: trace.to_be_bytes(), span, flags })
    }

    /// The same, if the caller keeps this trace.
    pub fn sampled(text: &str) -> Option<Self> {
        Self::parse(text).filter(|parent| parent.flags & SAMPLED != 0)
    }

    /// The `traceparent` for what one of our spans calls.
    pub fn with_span(self, span: u64) -> Self {
        Self { span, ..self }
    }

    /// The id of the trace, as logs have it.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = u128::from_be_bytes(self.trace);
        write!(f, "00-{trace:032x}-{:016x}-{:02x}", self.span, self.flags & SAMPLED)
    }
}

pub fn span_of_message(message: MessageId) -> u64 {
    mixed(message.0, 1)
}

/// The same for the same attempt, also after a crash.
pub fn span_of_attempt(delivery: DeliveryId, number: u32) -> u64 {
    mixed(delivery.0, (u64::from(number) << 8) | 2)
}

/// Of the time before an attempt.
pub fn span_of_wait(delivery: DeliveryId, number: u32) -> u64 {
    mixed(delivery.0, (u64::from(number) << 8) | 3)
}

/// Spreads an id and a small number over all 64 bits; never 0.
fn mixed(id: u128, number: u64) -> u64 {
    let mut state = 0;
    for part in [(id >> 64) as u64, id as u64, number] {
        // One step of SplitMix64.
        state = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_leads_back_and_wrong_ones_are_none() {
        let parent = TraceParent::sampled(TEXT).unwrap();
        assert_eq!(parent.to_string(), TEXT);
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let child = parent.with_span(0x1234).to_string();
        assert_eq!(child, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000001234-01");
        let later = TEXT.replacen("00", "cc", 1) + "-what-comes";
        assert!(TraceParent::parse(&later).is_some(), "a later version may have more");
        let unsampled = TEXT.replace("-01", "-00");
        assert!(TraceParent::parse(&unsampled).is_some());
        assert!(TraceParent::sampled(&unsampled).is_none());
        for wrong in [
            "",
            "00",
            &TEXT.to_uppercase(),
            &(TEXT.to_owned() + "-x"),
            &TEXT.replacen("00", "ff", 1),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(TraceParent::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn spans_of_different_things_differ() {
        let mut all = std::collections::BTreeSet::new();
        for id in 0..100 {
            all.insert(span_of_message(MessageId(id)));
            for number in 1..20 {
                all.insert(span_of_attempt(DeliveryId(id), number));
                all.insert(span_of_wait(DeliveryId(id), number));
            }
        }
        assert_eq!(all.len(), 100 * (1 + 19 * 2));
        assert!(!all.contains(&0));
    }
}
