//! The checks of a mail server before it accepts a mail.

/// The longest line without its CRLF.
const LINE_MAX: usize = 998;

/// Why a mail is refused.
pub(in crate::fakes::email) fn flaw(mail: &[u8], smtputf8: bool) -> Option<&'static str> {
    let text = mail.strip_suffix(b"\r\n").unwrap_or(mail);
    let is_bare = |pair: &[u8]| (pair[0] == b'\r') != (pair[1] == b'\n');
    if text.starts_with(b"\n") || text.windows(2).any(is_bare) {
        return Some("5.6.0 bare CR or LF");
    }
    let len = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).len();
    if text.split(|b| *b == b'\n').any(|line| len(line) > LINE_MAX) {
        return Some("5.6.0 line longer than 998 octets");
    }
    if !smtputf8 && !head(mail).is_ascii() {
        return Some("5.6.7 header is not ASCII and SMTPUTF8 was not asked for");
    }
    let required = [
        ("from", "5.6.0 From is missing"),
        ("date", "5.6.0 Date is missing"),
        ("message-id", "5.6.0 Message-ID is missing"),
    ];
    required.into_iter().find(|(name, _)| field(mail, name).is_none()).map(|(_, flaw)| flaw)
}

fn head(mail: &[u8]) -> &[u8] {
    let end = mail.windows(4).position(|four| four == b"\r\n\r\n");
    &mail[..end.unwrap_or(mail.len())]
}

/// The value of a header field, unfolded.
pub(super) fn field(mail: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head(mail)).replace("\r\n ", " ").replace("\r\n\t", " ");
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "From: a@b.c\r\nDate: x\r\nMessage-ID:\r\n <m@x>\r\n\r\nhello\r\n";

    #[test]
    fn what_real_servers_refuse_is_refused() {
        assert_eq!(flaw(GOOD.as_bytes(), false), None);
        assert_eq!(field(GOOD.as_bytes(), "message-id").as_deref(), Some("<m@x>"));
        let bare = GOOD.replace("hello", "hel\nlo");
        assert_eq!(flaw(bare.as_bytes(), false), Some("5.6.0 bare CR or LF"));
        let bare = GOOD.replace("hello", "hel\rlo");
        assert_eq!(flaw(bare.as_bytes(), false), Some("5.6.0 bare CR or LF"));
        let long = GOOD.replace("hello", &"x".repeat(999));
        assert_eq!(flaw(long.as_bytes(), false), Some("5.6.0 line longer than 998 octets"));
        let other = GOOD.replace("Date: x", "Date: ü");
        assert!(flaw(other.as_bytes(), false).is_some() && flaw(other.as_bytes(), true).is_none());
        let anonymous = GOOD.replace("Message-ID:\r\n <m@x>\r\n", "");
        assert_eq!(flaw(anonymous.as_bytes(), false), Some("5.6.0 Message-ID is missing"));
    }
}
