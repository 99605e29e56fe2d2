//! Parses replies of an SMTP server, and formats them for the table of answers. Does no I/O and decides nothing.

use std::fmt;

use crate::scrub;

/// The largest reply in bytes.
pub(super) const REPLY_MAX: usize = 16 * 1024;

/// The step of the session that a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpStage {
    Greeting,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// After the final dot.
    Dot,
}

impl SmtpStage {
    /// Its service name in the table of answers.
    pub fn service(self) -> &'static str {
        match self {
            Self::Greeting => "email.smtp.greeting",
            Self::Ehlo => "email.smtp.ehlo",
            Self::StartTls => "email.smtp.starttls",
            Self::Auth => "email.smtp.auth",
            Self::Mail => "email.smtp.mail",
            Self::Rcpt => "email.smtp.rcpt",
            Self::Data => "email.smtp.data",
            Self::Dot => "email.smtp.dot",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpReply {
    pub code: u16,
    /// The text of all its lines, without codes; one line each.
    pub lines: Vec<String>,
    /// `x.y.z` (RFC 3463), if the text begins with it.
    pub enhanced: Option<EnhancedStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnhancedStatus(pub u8, pub u16, pub u16);

impl fmt::Display for EnhancedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The peer does not speak SMTP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedReply;

impl SmtpReply {
    /// The first complete reply in the buffer and its length; `None` if it is incomplete.
    pub(super) fn parse(buffer: &[u8]) -> Result<Option<(Self, usize)>, MalformedReply> {
        let mut at = 0;
        let mut lines = Vec::new();
        while let Some(end) = buffer[at..].iter().position(|b| *b == b'\n') {
            let line = &buffer[at..at + end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            at += end + 1;
            let (code, rest) = line.split_at_checked(3).ok_or(MalformedReply)?;
            let code = std::str::from_utf8(code).ok().and_then(|text| text.parse().ok());
            let code = code.filter(|code| (200..=599).contains(code)).ok_or(MalformedReply)?;
            let last = match rest.first() {
                None | Some(b' ') => true,
                Some(b'-') => false,
                Some(_) => return Err(MalformedReply),
            };
            let text = String::from_utf8_lossy(rest.get(1..).unwrap_or_default());
            lines.push(text.into_owned());
            if last {
                return Ok(Some((Self::new(code, lines), at)));
            }
        }
        if buffer.len() > REPLY_MAX { Err(MalformedReply) } else { Ok(None) }
    }

    fn new(code: u16, mut lines: Vec<String>) -> Self {
        let enhanced = lines.first().and_then(|line| EnhancedStatus::read(line));
        if let Some(enhanced) = enhanced {
            let prefix = enhanced.to_string();
            for line in &mut lines {
                if let Some(rest) = line.strip_prefix(&prefix) {
                    *line = rest.trim_start().to_owned();
                }
            }
        }
        Self { code, lines, enhanced }
    }

    /// The reply without these credentials, which it may repeat.
    pub(super) fn without(mut self, credentials: &[String]) -> Self {
        for line in &mut self.lines {
            *line = scrub::hide_all(std::mem::take(line), credentials);
        }
        self
    }

    pub(super) fn is_positive(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The text that rows are compared with: `5.1.1 text`. If the classes of the reply and the enhanced code differ,
    /// the class of the reply is used.
    pub fn for_table(&self) -> String {
        let text = self.lines.join(" ");
        match self.enhanced {
            Some(EnhancedStatus(_, subject, detail)) => {
                format!("{}.{subject}.{detail} {text}", self.code / 100)
            }
            None => text,
        }
    }

    /// The server's queue id of the mail, if the reply contains it.
    pub fn queued_as(&self) -> Option<String> {
        let text = self.lines.first()?;
        let lower = text.to_ascii_lowercase();
        let name = match lower.find("queued as ") {
            Some(at) => text[at + "queued as ".len()..].split([' ', ';', ')']).next()?,
            None => text
                .rsplit(' ')
                .next()
                .filter(|word| word.len() >= 10 && word.bytes().any(|b| b.is_ascii_digit()))?,
        };
        Some(scrub::shorten(name, 128)).filter(|name| !name.is_empty())
    }

    /// The text without the recipient, for reports.
    pub fn detail(&self, recipient: &str) -> Option<String> {
        let text = scrub::hide_exactly(&self.lines.join(" "), recipient);
        scrub::excerpt(text.as_bytes(), &[])
    }
}

impl EnhancedStatus {
    fn read(line: &str) -> Option<Self> {
        let word = line.split(' ').next()?;
        let mut parts = word.split('.');
        let mut number = || -> Option<u16> {
            let part = parts.next()?;
            (part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit())).then_some(())?;
            part.parse().ok()
        };
        let class = number().filter(|class| [2, 4, 5].contains(class))?;
        let (subject, detail) = (number()?, number()?);
        parts.next().is_none().then_some(Self(class as u8, subject, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SmtpReply {
        SmtpReply::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_reply_of_several_lines_is_one_reply() {
        let (reply, len) =
            SmtpReply::parse(b"250-mx.example\r\n250-SIZE 1000\r\n250 DSN\r\n354 go")
                .unwrap()
                .unwrap();
        assert_eq!((reply.code, reply.lines.len(), len), (250, 3, 40));
        assert_eq!(SmtpReply::parse(b"250-half\r\n250 o"), Ok(None));
        assert_eq!(parse("250\r\n").lines, [""]);
    }

    #[test]
    fn enhanced_codes_are_taken_out_of_every_line() {
        let reply = parse("550-5.1.1 No such\r\n550 5.1.1 user\r\n");
        assert_eq!(reply.enhanced, Some(EnhancedStatus(5, 1, 1)));
        assert_eq!(reply.lines, ["No such", "user"]);
        assert_eq!(parse("250 2.1.0.5 x\r\n").enhanced, None);
        assert_eq!(parse("550 5.1 x\r\n").enhanced, None);
    }

    #[test]
    fn where_classes_disagree_the_reply_decides_and_the_code_says_why() {
        assert_eq!(parse("550 4.1.1 x\r\n").for_table(), "5.1.1 x");
        assert_eq!(parse("450 5.1.1 x\r\n").for_table(), "4.1.1 x");
    }

    #[test]
    fn what_is_no_smtp_is_seen_as_such() {
        for text in ["HTTP/1.1 400 Bad\r\n", "25\r\n", "250=x\r\n", "700 x\r\n", "\r\n"] {
            assert_eq!(SmtpReply::parse(text.as_bytes()), Err(MalformedReply), "{text}");
        }
        assert_eq!(SmtpReply::parse(&[b'x'; REPLY_MAX + 1]), Err(MalformedReply));
    }

    #[test]
    fn a_recipient_is_never_repeated() {
        let reply = parse("550 5.1.1 <A@b.c>: a@B.C is unknown\r\n");
        assert_eq!(reply.detail("a@b.c").unwrap(), "<[hidden]>: [hidden] is unknown");
    }

    #[test]
    fn no_reply_breaks_its_parser_when_it_is_fuzzed() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let seeds: [&[u8]; 3] = [
            b"250-a\r\n250 OK queued as 4F2\r\n",
            b"550 5.1.1 <a@b.example> unknown\r\n",
            b"421\n",
        ];
        postrider_testkit::fuzz::fuzz("smtp_reply", &corpus, &seeds, |bytes| {
            if let Ok(Some((reply, length))) = SmtpReply::parse(bytes) {
                assert!(length <= bytes.len());
                let _ = (reply.for_table(), reply.queued_as(), reply.detail("a@b.example"));
            }
        });
    }
}
