//! Commands to an SMTP server as bytes, and the mail with its dots doubled. Does no I/O.

use std::fmt::Write;

use postrider_core::DeliveryId;

/// The extensions that the server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmtpExtensions {
    pub pipelining: bool,
    pub starttls: bool,
    pub eight_bit_mime: bool,
    pub smtputf8: bool,
    pub dsn: bool,
    /// The largest mail in bytes, if the server states it.
    pub size: Option<u64>,
    /// DELIVERBY (RFC 2852): the shortest time that it accepts.
    pub deliver_by_s: Option<u32>,
    pub auth: Vec<String>,
}

impl SmtpExtensions {
    /// Reads the reply to EHLO; its first line is a greeting.
    pub fn read(lines: &[String]) -> Self {
        let mut found = Self::default();
        for line in lines.iter().skip(1) {
            let mut words = line.split([' ', '=']).filter(|word| !word.is_empty());
            let Some(word) = words.next() else { continue };
            match word.to_ascii_uppercase().as_str() {
                "PIPELINING" => found.pipelining = true,
                "STARTTLS" => found.starttls = true,
                "8BITMIME" => found.eight_bit_mime = true,
                "SMTPUTF8" => found.smtputf8 = true,
                "DSN" => found.dsn = true,
                "SIZE" => {
                    found.size = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                }
                "DELIVERBY" => {
                    found.deliver_by_s =
                        Some(words.next().and_then(|n| n.parse().ok()).unwrap_or(0));
                }
                "AUTH" => found.auth.extend(words.map(str::to_ascii_uppercase)),
                _ => {}
            }
        }
        found
    }
}

/// One mail to one recipient.
#[derive(Debug, Clone)]
pub struct OutgoingMail {
    pub delivery: DeliveryId,
    /// The return path; empty for none.
    pub sender: String,
    pub recipient: String,
    /// The mail, with CRLF line ends.
    pub mail: Vec<u8>,
    /// The rest of its TTL; 0 means now or never, which SMTP cannot express.
    pub left_s: u32,
}

impl OutgoingMail {
    /// Whether an address in the envelope or a header is not ASCII; all other text is encoded.
    pub fn needs_smtputf8(&self) -> bool {
        !self.recipient.is_ascii() || !self.sender.is_ascii() || !self.mail.is_ascii()
    }

    pub(super) fn mail_from(&self, server: &SmtpExtensions) -> String {
        let mut line = format!("MAIL FROM:<{}>", self.sender);
        if server.size.is_some() {
            let _ = write!(line, " SIZE={}", self.mail.len());
        }
        if self.needs_smtputf8() {
            line.push_str(" BODY=8BITMIME SMTPUTF8");
        }
        if server.dsn {
            let _ = write!(line, " RET=HDRS ENVID={}", self.delivery);
        }
        // A server that cannot deliver it in time returns it.
        if server.deliver_by_s.is_some_and(|shortest| self.left_s >= shortest.max(1)) {
            let _ = write!(line, " BY={};R", self.left_s);
        }
        line.push_str("\r\n");
        line
    }

    pub(super) fn rcpt_to(&self, server: &SmtpExtensions) -> String {
        let mut line = format!("RCPT TO:<{}>", self.recipient);
        if server.dsn {
            line.push_str(" NOTIFY=FAILURE,DELAY");
            if self.recipient.is_ascii() {
                line.push_str(" ORCPT=rfc822;");
                push_xtext(&mut line, &self.recipient);
            }
        }
        line.push_str("\r\n");
        line
    }
}

/// RFC 3461: printable ASCII stays, except `+` and `=`.
fn push_xtext(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if (b'!'..=b'~').contains(&byte) && byte != b'+' && byte != b'=' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "+{byte:02X}");
        }
    }
}

/// The mail as DATA needs it: a dot before every line that begins with one, and a single dot at the end. A bare CR
/// or LF becomes CRLF, which prevents SMTP smuggling.
pub(super) fn dotted(mail: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(mail.len() + 64);
    let mut rest = mail;
    while !rest.is_empty() {
        if rest[0] == b'.' {
            out.push(b'.');
        }
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..end]);
        out.extend_from_slice(b"\r\n");
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
    }
    out.extend_from_slice(b".\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(recipient: &str) -> OutgoingMail {
        OutgoingMail {
            delivery: DeliveryId(9),
            sender: "bounce@shop.example".into(),
            recipient: recipient.into(),
            mail: b"Subject: x\r\n\r\nhello\r\n".to_vec(),
            left_s: 600,
        }
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn abilities_are_read_whatever_their_case() {
        let server = SmtpExtensions::read(&lines(
            "mx.example hello\nPIPELINING\nsize 10240000\nAUTH PLAIN login XOAUTH2\nAUTH=LOGIN\n8BITMIME\nDSN\nSMTPUTF8",
        ));
        assert!(server.pipelining && server.eight_bit_mime && server.dsn && server.smtputf8);
        assert!(!server.starttls);
        assert_eq!(server.size, Some(10_240_000));
        assert_eq!(server.auth, ["PLAIN", "LOGIN", "XOAUTH2", "LOGIN"]);
        assert_eq!(SmtpExtensions::read(&lines("SIZE 5\nSIZE 0")).size, None);
    }

    #[test]
    fn only_what_the_server_offers_is_used() {
        let plain = SmtpExtensions::default();
        assert_eq!(
            outgoing("a@b.example").mail_from(&plain),
            "MAIL FROM:<bounce@shop.example>\r\n"
        );
        assert_eq!(outgoing("a@b.example").rcpt_to(&plain), "RCPT TO:<a@b.example>\r\n");
        let able = SmtpExtensions { dsn: true, size: Some(1000), ..plain.clone() };
        assert_eq!(
            outgoing("a+b@c.example").mail_from(&able),
            "MAIL FROM:<bounce@shop.example> SIZE=21 RET=HDRS ENVID=dlv_00000000000000000000000009\r\n"
        );
        assert_eq!(
            outgoing("a+b@c.example").rcpt_to(&able),
            "RCPT TO:<a+b@c.example> NOTIFY=FAILURE,DELAY ORCPT=rfc822;a+2Bb@c.example\r\n"
        );
        let reply_to = OutgoingMail {
            mail: "Reply-To: ö@b.example\r\n\r\n".into(),
            ..outgoing("a@b.example")
        };
        assert!(reply_to.mail_from(&plain).ends_with(" BODY=8BITMIME SMTPUTF8\r\n"));
        let other = outgoing("ö@b.example").mail_from(&SmtpExtensions::default());
        assert!(other.ends_with(" BODY=8BITMIME SMTPUTF8\r\n"), "{other}");
    }

    #[test]
    fn a_server_that_keeps_to_a_time_is_told_what_is_left() {
        let by = |offer: &str, left_s: u32| {
            let server = SmtpExtensions::read(&lines(&format!("mx.example hello\n{offer}")));
            let line = OutgoingMail { left_s, ..outgoing("a@b.example") }.mail_from(&server);
            line.trim_end().split_once(" BY=").map(|(_, value)| value.to_owned())
        };
        assert_eq!(by("DELIVERBY", 600).as_deref(), Some("600;R"));
        assert_eq!(by("deliverby 240", 240).as_deref(), Some("240;R"));
        assert_eq!(by("DELIVERBY 240", 239), None, "shorter than it accepts");
        assert_eq!(by("DELIVERBY", 0), None, "now or never");
        assert_eq!(by("DSN", 600), None, "not offered");
    }

    #[test]
    fn dots_are_doubled_and_nothing_can_end_the_mail_early() {
        let text = |mail: &[u8]| String::from_utf8(dotted(mail)).unwrap();
        assert_eq!(text(b".a\r\nb\r\n..\r\n"), "..a\r\nb\r\n...\r\n.\r\n");
        assert_eq!(text(b"a\n.\nQUIT\r.\r\n"), "a\r\n..\r\nQUIT\r\n..\r\n.\r\n");
        assert_eq!(text(b"a\r\n.\n"), "a\r\n..\r\n.\r\n");
        assert_eq!(text(b"no line end"), "no line end\r\n.\r\n");
        assert_eq!(text(b""), ".\r\n");
    }
}
