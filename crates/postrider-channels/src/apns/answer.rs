//! Reads the reason of Apple's answers, and adds a suffix for what only we know. `answers.toml` says what a code means.

use std::borrow::Cow;

use postrider_core::{Attempt, Timestamp};
use serde::Deserialize;

use crate::pool::Response;
use crate::scrub;

const REASON_MAX: usize = 64;

/// Apple's reason, as it is written: Apple adds new ones.
pub(super) struct ApnsRefusal {
    pub(super) reason: String,
    /// When Apple found that the device is gone.
    timestamp: Option<Timestamp>,
}

pub(super) fn read(response: &Response) -> Option<ApnsRefusal> {
    #[derive(Deserialize)]
    struct ApnsErrorBody<'a> {
        #[serde(borrow)]
        reason: Cow<'a, str>,
        timestamp: Option<i64>,
    }
    if response.status.is_success() {
        return None;
    }
    let body: ApnsErrorBody<'_> = serde_json::from_slice(&response.body).ok()?;
    let reason = scrub::shorten(&body.reason, REASON_MAX);
    Some(ApnsRefusal { reason, timestamp: body.timestamp.map(Timestamp) })
}

/// The code for the table of answers. `proven` means that the account works, and that the device was looked for in its
/// own environment.
pub(super) fn code(
    refused: Option<ApnsRefusal>,
    status: u16,
    attempt: &Attempt,
    proven: bool,
) -> Option<String> {
    let is_repeat = status >= 500 && attempt.number > 1;
    let Some(ApnsRefusal { reason, timestamp }) = refused else {
        return is_repeat.then(|| format!("{status}.again"));
    };
    let suffix = match reason.as_str() {
        "BadDeviceToken" if proven => ".proven",
        "Unregistered" if is_earlier(timestamp, attempt) => ".earlier",
        // One server may shut down. If the next one does, too, something is wrong.
        "Shutdown" if attempt.replays > 0 => ".again",
        "Shutdown" => "",
        _ if is_repeat => ".again",
        _ => "",
    };
    Some(reason + suffix)
}

/// Whether the device was registered with us after Apple saw it go.
fn is_earlier(gone: Option<Timestamp>, attempt: &Attempt) -> bool {
    match (gone, attempt.address_since) {
        (Some(gone), Some(since)) => gone <= since,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"reason":"Unregistered","timestamp":1790000000000}"#,
            r#"{"reason":"BadDeviceToken"}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("apns_answer", &seeds, |answer| {
            drop(read(&answer));
        });
    }
}
