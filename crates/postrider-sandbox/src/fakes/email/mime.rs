//! Reads a mail as a mail program does: header fields, text, HTML and attachments. Lenient, because it shows what came;
//! the checks are elsewhere. Shares no code with the channel that builds mails.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::inbox::view::InboxAttachment;

const PARTS_MAX: usize = 100;
const DEPTH_MAX: usize = 8;
/// Takes any padding: some senders omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[derive(Debug, Default)]
pub(super) struct ReadMail {
    /// In their order, unfolded and decoded.
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: Option<String>,
    pub(super) html: Option<String>,
    pub(super) attachments: Vec<InboxAttachment>,
}

pub(super) fn read(mail: &[u8]) -> ReadMail {
    let (head, body) = split_head(mail);
    let mut found = ReadMail::default();
    let fields = fields(head);
    let mut left = PARTS_MAX;
    read_part(&mut found, &fields, body, DEPTH_MAX, &mut left);
    found.headers = fields.into_iter().map(|(name, value)| (name, decode_words(&value))).collect();
    found
}

/// Head and body at the first empty line.
pub(super) fn split_head(mail: &[u8]) -> (&[u8], &[u8]) {
    if let Some(body) = mail.strip_prefix(b"\r\n") {
        return (b"", body);
    }
    match memchr::memmem::find(mail, b"\r\n\r\n") {
        Some(at) => (&mail[..at + 2], &mail[at + 4..]),
        None => match memchr::memmem::find(mail, b"\n\n") {
            Some(at) => (&mail[..=at], &mail[at + 2..]),
            None => (mail, b""),
        },
    }
}

/// Names and values, unfolded.
pub(super) fn fields(head: &[u8]) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in String::from_utf8_lossy(head).split('\n') {
        let line = line.trim_end_matches('\r');
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    for (_, value) in &mut fields {
        *value = value.trim().to_owned();
    }
    fields
}

fn read_part(
    found: &mut ReadMail,
    fields: &[(String, String)],
    body: &[u8],
    depth: usize,
    left: &mut usize,
) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let field = |name: &str| {
        let known = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        known.map_or("", |(_, value)| value.as_str())
    };
    let content_type = match field("content-type") {
        "" => "text/plain; charset=us-ascii",
        given => given,
    };
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind.starts_with("multipart/") && depth > 0 {
        let boundary = parameter(content_type, "boundary").unwrap_or_default();
        for part in split_parts(body, &boundary) {
            let (head, body) = split_head(part);
            read_part(found, &self::fields(head), body, depth - 1, left);
        }
        return;
    }
    let bytes = decode_body(body, field("content-transfer-encoding"));
    let disposition = field("content-disposition");
    let name = parameter(disposition, "filename").or_else(|| parameter(content_type, "name"));
    let is_attached = disposition.to_ascii_lowercase().starts_with("attachment") || name.is_some();
    let charset = parameter(content_type, "charset").unwrap_or_default();
    match kind.as_str() {
        "text/plain" if !is_attached && found.text.is_none() => {
            found.text = Some(decode_text(&bytes, &charset));
        }
        "text/html" if !is_attached && found.html.is_none() => {
            found.html = Some(decode_text(&bytes, &charset));
        }
        _ => {
            let name = name.map_or_else(|| "(without a name)".to_owned(), |n| decode_words(&n));
            found.attachments.push(InboxAttachment { name, kind, bytes: bytes.len() });
        }
    }
}

/// What is between the lines `--boundary`.
fn split_parts<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
    let line = format!("--{boundary}");
    if boundary.is_empty() {
        return Vec::new();
    }
    let starts = memchr::memmem::find_iter(body, line.as_bytes());
    let starts: Vec<_> = starts.filter(|at| *at == 0 || body[at - 1] == b'\n').collect();
    let ends = starts.iter().skip(1).copied().chain([body.len()]);
    let between = starts.iter().zip(ends).filter_map(|(start, end)| {
        let part = body.get(start + line.len()..end)?;
        // The last line has two more dashes.
        if part.starts_with(b"--") {
            return None;
        }
        let first = memchr::memchr(b'\n', part)?;
        let part = &part[first + 1..];
        let part = part.strip_suffix(b"\n").unwrap_or(part);
        Some(part.strip_suffix(b"\r").unwrap_or(part))
    });
    between.collect()
}

/// The value of `; name=value` or `; name="value"`.
fn parameter(field: &str, name: &str) -> Option<String> {
    let mut rest = field;
    while let Some((_, after)) = rest.split_once(';') {
        let (key, value) = after.split_once('=')?;
        let value = value.trim_start();
        let (value, end) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => {
                let end = value.find(';').unwrap_or(value.len());
                value.split_at(end)
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value.trim().to_owned());
        }
        rest = end;
    }
    None
}

fn decode_body(body: &[u8], encoding: &str) -> Vec<u8> {
    match encoding.trim().to_ascii_lowercase().as_str() {
        "base64" => {
            let is_code = |b: &u8| b.is_ascii_alphanumeric() || b"+/".contains(b);
            let code: Vec<u8> = body.iter().copied().filter(is_code).collect();
            BASE64.decode(&code).unwrap_or(code)
        }
        "quoted-printable" => decode_quoted(body),
        _ => body.to_vec(),
    }
}

fn decode_quoted(body: &[u8]) -> Vec<u8> {
    let hex = |b: u8| (b as char).to_digit(16).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'=', [b'\r', b'\n', after @ ..] | [b'\n', after @ ..]) => rest = after,
            (b'=', [high, low, after @ ..]) => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => {
                    decoded.push(high * 16 + low);
                    rest = after;
                }
                None => decoded.push(b'='),
            },
            _ => decoded.push(*first),
        }
    }
    decoded
}

fn decode_text(bytes: &[u8], charset: &str) -> String {
    match charset.to_ascii_lowercase().as_str() {
        "iso-8859-1" | "latin1" | "windows-1252" => bytes.iter().map(|b| *b as char).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// `=?utf-8?Q?…?=` and `=?utf-8?B?…?=` (RFC 2047) as text. Blanks between two of them do not count.
pub(super) fn decode_words(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    let mut was_word = false;
    while let Some((before, after)) = rest.split_once("=?") {
        let word = decode_word(after);
        if !(was_word && word.is_some() && before.trim().is_empty()) {
            text.push_str(before);
        }
        match word {
            Some((decoded, after)) => {
                text.push_str(&decoded);
                rest = after;
                was_word = true;
            }
            None => {
                text.push_str("=?");
                rest = after;
                was_word = false;
            }
        }
    }
    text + rest
}

/// The text of `charset?X?code?=…`, and what follows.
fn decode_word(text: &str) -> Option<(String, &str)> {
    let (charset, text) = text.split_once('?')?;
    let (encoding, text) = text.split_once('?')?;
    let (code, after) = text.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => BASE64.decode(code.trim_end_matches('=')).ok()?,
        "Q" | "q" => decode_quoted(code.replace('_', " ").as_bytes()),
        _ => return None,
    };
    Some((decode_text(&bytes, charset.split('*').next().unwrap_or_default()), after))
}

/// The links of a mail's HTML, in their order, each once.
pub(super) fn links(html: &str) -> Vec<String> {
    const LINKS_MAX: usize = 50;
    let mut links: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.to_ascii_lowercase().find("href=").filter(|_| links.len() < LINKS_MAX)
    {
        rest = &rest[at + "href=".len()..];
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c));
        let Some(quote) = quote else { continue };
        let Some((link, after)) = rest[1..].split_once(quote) else { break };
        let link = crate::inbox::view::plain_text(link);
        let is_web = link.starts_with("https://") || link.starts_with("http://");
        if is_web && !links.contains(&link) {
            links.push(link);
        }
        rest = after;
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "From: =?utf-8?Q?J=C3=BCrgen?= <a@b.example>\r\nSubject: =?utf-8?B?R3LDvMOf?=\r\n =?utf-8?Q?_Gott?=\r\n\
        Content-Type: multipart/mixed; boundary=\"x1\"\r\n\r\n--x1\r\n\
        Content-Type: multipart/alternative; boundary=x2\r\n\r\n\
        --x2\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
        Gr=C3=BC=C3=9Fe =\r\naus\r\n--x2\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n\
        PGEgaHJl\r\nZj0iaHR0cHM6Ly9hLmV4YW1wbGUvP2E9MSZhbXA7Yj0yIj54PC9hPg==\r\n--x2--\r\n\
        --x1\r\nContent-Type: application/pdf; name=\"a.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--x1--\r\n";

    #[test]
    fn a_mail_is_read_as_a_mail_program_reads_it() {
        let mail = read(MAIL.as_bytes());
        assert_eq!(mail.headers[0], ("From".to_owned(), "Jürgen <a@b.example>".to_owned()));
        assert_eq!(mail.headers[1].1, "Grüß Gott");
        assert_eq!(mail.text.as_deref(), Some("Grüße aus"));
        let html = mail.html.unwrap();
        assert_eq!(links(&html), ["https://a.example/?a=1&b=2"]);
        assert_eq!((mail.attachments.len(), mail.attachments[0].bytes), (1, 3));
        assert_eq!(mail.attachments[0].name, "a.pdf");
    }

    #[test]
    fn a_mail_without_structure_is_its_text() {
        let mail = read(b"Subject: x\r\n\r\nhello\r\n");
        assert_eq!(mail.text.as_deref(), Some("hello\r\n"));
        assert!(mail.html.is_none() && mail.attachments.is_empty());
    }

    #[test]
    fn fuzzed_mails_are_read_without_a_panic() {
        let mut state = 7u64;
        for _ in 0..2_000 {
            let mut mail = MAIL.as_bytes().to_vec();
            for _ in 0..8 {
                state = crate::correlation::mix(state);
                let at = state as usize % mail.len().max(1);
                match state >> 60 {
                    _ if mail.is_empty() => {}
                    0..6 => mail[at] = (state >> 32) as u8,
                    6..10 => drop(mail.remove(at)),
                    10..13 => mail.insert(at, b'='),
                    _ => mail.truncate(at.max(1)),
                }
            }
            let found = read(&mail);
            links(&found.html.unwrap_or_default());
        }
    }
}
