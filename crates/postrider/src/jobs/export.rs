//! Deliveries as lines of an export: NDJSON or CSV, without endpoints and payloads.

use postrider_core::Delivery;

use super::record::ExportFormat;
use crate::api::DeliveryBody;

const COLUMNS: &str = "id,message,tenant,channel,provider,class,recipient,state,reason,attempts,created_at,\
                       changed_at,expires_at,account,status,code,detail\r\n";

/// What an export begins with.
pub(crate) fn head(format: ExportFormat) -> &'static str {
    match format {
        ExportFormat::Ndjson => "",
        ExportFormat::Csv => COLUMNS,
    }
}

pub(crate) fn content_type(format: ExportFormat) -> &'static str {
    match format {
        ExportFormat::Ndjson => "application/x-ndjson",
        ExportFormat::Csv => "text/csv; charset=utf-8",
    }
}

/// Appends one delivery.
pub(crate) fn line(format: ExportFormat, delivery: Delivery, out: &mut Vec<u8>) {
    match format {
        ExportFormat::Ndjson => {
            let body = DeliveryBody::from(delivery);
            out.extend(serde_json::to_vec(&body).unwrap_or_default());
            out.push(b'\n');
        }
        ExportFormat::Csv => csv_line(&delivery, out),
    }
}

fn csv_line(delivery: &Delivery, out: &mut Vec<u8>) {
    let last = delivery.log.last();
    let account = delivery.log.iter().rev().find_map(|attempt| attempt.account.as_deref());
    let fields = [
        delivery.id.to_string(),
        delivery.message.to_string(),
        delivery.tenant.to_string(),
        delivery.channel.to_string(),
        delivery.provider.to_string(),
        delivery.class.to_string(),
        delivery.recipient.as_deref().unwrap_or_default().to_owned(),
        delivery.state.to_string(),
        delivery.reason.map(|reason| reason.to_string()).unwrap_or_default(),
        delivery.attempts.to_string(),
        delivery.created_at.to_string(),
        delivery.changed_at.to_string(),
        delivery.expires_at.to_string(),
        account.unwrap_or_default().to_owned(),
        last.and_then(|attempt| attempt.status)
            .map(|status| status.to_string())
            .unwrap_or_default(),
        last.and_then(|attempt| attempt.code.clone()).unwrap_or_default(),
        last.and_then(|attempt| attempt.detail.clone()).unwrap_or_default(),
    ];
    for (place, field) in fields.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        csv_field(field, out);
    }
    out.extend(b"\r\n");
}

/// As RFC 4180. A text that a spreadsheet would compute begins with an apostrophe.
fn csv_field(text: &str, out: &mut Vec<u8>) {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !is_formula && !text.contains(['"', ',', '\n', '\r']) {
        out.extend(text.as_bytes());
        return;
    }
    out.push(b'"');
    if is_formula {
        out.push(b'\'');
    }
    out.extend(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_needed_and_never_computed() {
        let field = |text: &str| {
            let mut out = Vec::new();
            csv_field(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(field("plain text"), "plain text");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
        assert_eq!(field("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
    }
}
