//! Answers to accepted messages, written by hand: a batch of a hundred thousand lines has no time
//! for a serializer.

use std::io::Write as _;

use postrider_core::DeliveryId;
use postrider_core::ports::store::Admission;
use postrider_dispatch::Refusal;

use super::problem::Problem;

/// Writes `{"id":…,"deliveries":[…],"duplicate":…}`; false, writing nothing, for a conflict.
pub(crate) fn accepted(out: &mut Vec<u8>, admission: &Admission) -> bool {
    let (message, deliveries, duplicate) = match admission {
        Admission::Accepted { message, deliveries } => (message, deliveries, false),
        Admission::Duplicate { message, deliveries } => (message, deliveries, true),
        Admission::Conflict { .. } => return false,
    };
    out.push(b'{');
    fields(out, &message, deliveries, duplicate);
    out.push(b'}');
    true
}

/// Writes one line of a batch's answer.
pub(crate) fn result(out: &mut Vec<u8>, index: u64, answer: Result<Admission, Refusal>) {
    let refusal = match answer {
        Ok(Admission::Accepted { message, deliveries }) => {
            return taken(out, index, &message, &deliveries, false);
        }
        Ok(Admission::Duplicate { message, deliveries }) => {
            return taken(out, index, &message, &deliveries, true);
        }
        Ok(Admission::Conflict { message }) => Refusal::conflict(&message.to_string()),
        Err(refusal) => refusal,
    };
    refused(out, index, &refusal.into());
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

fn taken(
    out: &mut Vec<u8>,
    index: u64,
    message: &dyn std::fmt::Display,
    deliveries: &[DeliveryId],
    duplicate: bool,
) {
    let _ = write!(out, "{{\"index\":{index},\"status\":202,");
    fields(out, message, deliveries, duplicate);
    out.extend_from_slice(b"}\n");
}

fn fields(
    out: &mut Vec<u8>,
    message: &dyn std::fmt::Display,
    deliveries: &[DeliveryId],
    duplicate: bool,
) {
    let _ = write!(out, "\"id\":\"{message}\",\"deliveries\":[");
    for (i, delivery) in deliveries.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{{\"id\":\"{delivery}\",\"state\":\"queued\"}}");
    }
    let _ = write!(out, "],\"duplicate\":{duplicate}");
}
