//! Writes the answers to accepted messages by hand: a serializer is too slow for a batch of a hundred
//! thousand lines.

use std::io::Write as _;

use postrider_dispatch::{IntakeAnswer, IntakeRefusal};

use super::problem::Problem;

/// The `traceparent` that a message names itself.
pub(crate) fn own_traceparent(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct TraceField {
        traceparent: Option<String>,
    }
    // Most messages have none, and are not read twice.
    memchr::memmem::find(body, b"\"traceparent\"")?;
    serde_json::from_slice::<TraceField>(body).ok()?.traceparent
}

/// Writes `{"id":…,"deliveries":[…],"duplicate":…}`.
pub(crate) fn accepted(out: &mut Vec<u8>, answer: &IntakeAnswer) {
    out.push(b'{');
    fields(out, answer);
    out.push(b'}');
}

/// Writes one line of a batch's answer.
pub(crate) fn result(out: &mut Vec<u8>, index: u64, answer: Result<IntakeAnswer, IntakeRefusal>) {
    match answer {
        Ok(answer) => {
            let _ = write!(out, "{{\"index\":{index},\"status\":202,");
            fields(out, &answer);
            out.extend_from_slice(b"}\n");
        }
        Err(refusal) => refused(out, index, &refusal.into()),
    }
}

pub(crate) fn refused(out: &mut Vec<u8>, index: u64, problem: &Problem) {
    let _ = write!(out, "{{\"index\":{index},\"status\":{},", problem.status);
    if let Some(seconds) = problem.retry_after_s {
        let _ = write!(out, "\"retry_after_s\":{seconds},");
    }
    out.extend_from_slice(b"\"error\":");
    out.extend_from_slice(problem.to_json().as_bytes());
    out.extend_from_slice(b"}\n");
}

fn fields(out: &mut Vec<u8>, answer: &IntakeAnswer) {
    let IntakeAnswer { message, deliveries, duplicate, repeated, withheld } = answer;
    let _ = write!(out, "\"id\":\"{message}\",\"deliveries\":[");
    for (i, delivery) in deliveries.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{{\"id\":\"{delivery}\",\"state\":\"queued\"}}");
    }
    let _ = write!(out, "],\"duplicate\":{duplicate}");
    if *repeated > 0 {
        let _ = write!(out, ",\"repeated\":{repeated}");
    }
    for (i, member) in withheld.iter().enumerate() {
        let before = if i == 0 { ",\"withheld\":[" } else { "," };
        let (id, reason) = (member.delivery, member.reason);
        let _ = write!(out, "{before}{{\"delivery\":\"{id}\",\"reason\":\"{reason}\"}}");
    }
    if !withheld.is_empty() {
        out.push(b']');
    }
}
