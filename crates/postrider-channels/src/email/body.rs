//! Transfer encodings. Every part is sent as seven-bit text in short lines, so that no relay changes it and breaks its
//! signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const QP_LINE_MAX: usize = 76;
const BASE64_LINE_BYTES: usize = 57;
/// Lines of up to 998 are legal, but some relays wrap long ones.
const PLAIN_LINE_MAX: usize = 200;
const CRLF: &str = "\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    SevenBit,
    QuotedPrintable,
    Base64,
}

impl Encoding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SevenBit => "7bit",
            Self::QuotedPrintable => "quoted-printable",
            Self::Base64 => "base64",
        }
    }

    /// The encoding that keeps most of the text readable without making it much longer.
    pub(super) fn for_text(text: &str) -> Self {
        let safe = |line: &str| {
            line.len() <= PLAIN_LINE_MAX
                && !line.starts_with("From ")
                && line.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
        };
        if lines(text).all(safe) {
            return Self::SevenBit;
        }
        let escaped = text.bytes().filter(|b| !b.is_ascii()).count();
        if escaped * 3 > text.len() { Self::Base64 } else { Self::QuotedPrintable }
    }

    /// Appends the text with CRLF at the end of every line.
    pub(super) fn push(self, out: &mut String, text: &str) {
        match self {
            Self::SevenBit => lines(text).for_each(|line| {
                out.push_str(line);
                out.push_str(CRLF);
            }),
            Self::QuotedPrintable => lines(text).for_each(|line| push_qp_line(out, line)),
            Self::Base64 => push_base64(out, text),
        }
    }
}

/// The lines of a text with LF or CRLF. A last line without a line break counts if it is not empty.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.strip_suffix('\n')
        .unwrap_or(text)
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
}

fn push_qp_line(out: &mut String, line: &str) {
    let mut len = 0;
    let bytes = line.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let last = at + 1 == bytes.len();
        let plain = match byte {
            b' ' | b'\t' => !last,
            b'=' => false,
            // Some relays change a dot or "From " at the beginning of a line.
            b'.' | b'F' => len > 0,
            b => (b'!'..=b'~').contains(&b),
        };
        let width = if plain { 1 } else { 3 };
        // Keeps room for the soft break, unless this is the last character.
        if len + width > QP_LINE_MAX - usize::from(!last) {
            out.push('=');
            out.push_str(CRLF);
            len = 0;
        }
        if plain {
            out.push(char::from(byte));
        } else {
            push_escaped(out, byte);
        }
        len += width;
    }
    out.push_str(CRLF);
}

/// `=XX`
pub(super) fn push_escaped(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('=');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// Line breaks are CRLF inside of base64, too.
fn push_base64(out: &mut String, text: &str) {
    let mut normal = String::with_capacity(text.len() + 32);
    for line in lines(text) {
        normal.push_str(line);
        normal.push_str(CRLF);
    }
    for chunk in normal.as_bytes().chunks(BASE64_LINE_BYTES) {
        STANDARD.encode_string(chunk, out);
        out.push_str(CRLF);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str) -> (Encoding, String) {
        let encoding = Encoding::for_text(text);
        let mut out = String::new();
        encoding.push(&mut out, text);
        (encoding, out)
    }

    #[test]
    fn ascii_goes_as_it_is_with_crlf() {
        assert_eq!(encode("a\nb\r\n\n.c\n"), (Encoding::SevenBit, "a\r\nb\r\n\r\n.c\r\n".into()));
        assert_eq!(encode(""), (Encoding::SevenBit, "\r\n".into()));
    }

    #[test]
    fn umlauts_are_quoted_and_other_scripts_are_base64() {
        assert_eq!(
            encode("Grüße = x \n.y"),
            (Encoding::QuotedPrintable, "Gr=C3=BC=C3=9Fe =3D x=20\r\n=2Ey\r\n".into())
        );
        assert_eq!(encode("日本語"), (Encoding::Base64, "5pel5pys6KqeDQo=\r\n".into()));
    }

    #[test]
    fn whatever_comes_leaves_in_short_seven_bit_lines() {
        for text in ["x".repeat(5000), "ü".repeat(5000), "From me\n".repeat(9), "a\rb\0c".into()] {
            let (encoding, out) = encode(&text);
            assert_ne!(encoding, Encoding::SevenBit);
            for line in out.split("\r\n") {
                assert!(line.len() <= QP_LINE_MAX, "{}", line.len());
                assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)));
                assert!(!line.starts_with("From "));
            }
        }
    }
}
