//! Encodes and folds the values of header fields: names and subjects in any language. A value cannot become a second
//! header.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A line is folded at a space after so many characters.
const LINE_SOFT: usize = 76;
/// The longest text between `=?UTF-8?x?` and `?=` of an encoded word (RFC 2047: 75 in all).
const WORD_MAX: usize = 75 - "=?UTF-8?B??=".len();
/// A longer word does not fit into the 998 octets of a line.
const PLAIN_WORD_MAX: usize = 900;
const FOLD: &str = "\r\n ";

/// Free text, such as a subject. `at` is the length of the field's name in the first line.
pub(super) fn unstructured(at: usize, text: &str) -> String {
    if is_plain(text) { fold(at, text) } else { encoded_words(at, text) }
}

/// `Name <address>`, or only the address.
pub(super) fn mailbox(at: usize, name: Option<&str>, address: &str) -> String {
    let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
        return address.to_owned();
    };
    let shown = if !is_plain(name) {
        encoded_words(at, name)
    } else if name.bytes().all(|b| is_atext(b) || b == b' ') {
        fold(at, name)
    } else {
        format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let last_line = shown.rsplit("\r\n").next().map_or(0, str::len);
    let at = if shown.contains('\n') { last_line } else { at + last_line };
    let gap = if at + address.len() + 3 > LINE_SOFT { FOLD } else { " " };
    format!("{shown}{gap}<{address}>")
}

/// The characters of an address or a name that need no quotes.
pub(crate) fn is_atext(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

/// Whether the text is printable ASCII and cannot be mistaken for an encoded word.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && !text.contains("=?")
        && text.split(' ').all(|word| word.len() <= PLAIN_WORD_MAX)
}

/// Breaks lines at spaces, and only before a word: a blank line would end the header.
fn fold(mut at: usize, text: &str) -> String {
    if at + text.len() <= LINE_SOFT {
        return text.to_owned();
    }
    let mut folded = String::with_capacity(text.len() + text.len() / 32);
    for (nth, word) in text.split(' ').enumerate() {
        if nth > 0 {
            let breaks = at + 1 + word.len() > LINE_SOFT && at > 1 && !word.is_empty();
            folded.push_str(if breaks { FOLD } else { " " });
            at = if breaks { 1 } else { at + 1 };
        }
        folded.push_str(word);
        at += word.len();
    }
    folded
}

fn encoded_words(at: usize, text: &str) -> String {
    // The first word shares its line with the field's name.
    let mut room = WORD_MAX.saturating_sub(at).max(16);
    // Quoted-printable is readable, so it is used unless it is much longer.
    let as_q = q_len(text) * 2 <= text.len().div_ceil(3) * 4 * 3;
    let mut words = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while !rest.is_empty() {
        let cut = cut_to_fit(rest, room, as_q);
        let (part, tail) = rest.split_at(cut);
        if !words.is_empty() {
            words.push_str(FOLD);
        }
        if as_q {
            words.push_str("=?UTF-8?Q?");
            part.bytes().for_each(|b| push_q(&mut words, b));
        } else {
            words.push_str("=?UTF-8?B?");
            STANDARD.encode_string(part, &mut words);
        }
        words.push_str("?=");
        rest = tail;
        room = WORD_MAX;
    }
    words
}

/// How many bytes of the text, in whole characters, fit into an encoded word of at most `room`.
fn cut_to_fit(text: &str, room: usize, as_q: bool) -> usize {
    let mut len = 0;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        len = if as_q { len + q_len(&text[at..end]) } else { end.div_ceil(3) * 4 };
        if len > room && at > 0 {
            return at;
        }
    }
    text.len()
}

fn q_len(text: &str) -> usize {
    text.bytes().map(|b| if b == b' ' || is_q_plain(b) { 1 } else { 3 }).sum()
}

fn push_q(out: &mut String, byte: u8) {
    match byte {
        b' ' => out.push('_'),
        b if is_q_plain(b) => out.push(char::from(b)),
        b => super::body::push_escaped(out, b),
    }
}

/// The strictest set of RFC 2047, which is allowed in names.
fn is_q_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!*+-/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_and_long_text_is_folded_at_spaces() {
        assert_eq!(unstructured(9, "Your order 91 has shipped"), "Your order 91 has shipped");
        let long = "word ".repeat(40);
        let folded = unstructured(9, long.trim_end());
        assert!(folded.split("\r\n").all(|line| line.len() <= LINE_SOFT), "{folded}");
        assert_eq!(folded.replace("\r\n", ""), long.trim_end());
    }

    #[test]
    fn other_languages_become_encoded_words_of_at_most_75() {
        assert_eq!(unstructured(9, "Größe"), "=?UTF-8?Q?Gr=C3=B6=C3=9Fe?=");
        assert_eq!(unstructured(9, "日本語"), "=?UTF-8?B?5pel5pys6Kqe?=");
        let long = unstructured(9, &"Überraschung für alle 日本 ".repeat(12));
        for word in long.split("\r\n ") {
            assert!(word.len() <= 75 && word.starts_with("=?UTF-8?") && word.ends_with("?="));
        }
    }

    #[test]
    fn no_text_becomes_a_second_header() {
        for text in ["x\r\nBcc: all@example.com", "x\nBcc: y", "x\rBcc: y", "a\0b", "=?x?Q?y?="] {
            let written = unstructured(9, text);
            let raw = written.replace(FOLD, "");
            assert!(raw.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text:?}: {written:?}");
            assert!(raw.starts_with("=?UTF-8?"), "{text:?}: {written:?}");
        }
    }

    #[test]
    fn a_name_is_quoted_where_it_must_be() {
        assert_eq!(mailbox(6, None, "a@b.example"), "a@b.example");
        assert_eq!(mailbox(6, Some("Ada L"), "a@b.example"), "Ada L <a@b.example>");
        assert_eq!(
            mailbox(6, Some("L, \"A\" (x)"), "a@b.example"),
            r#""L, \"A\" (x)" <a@b.example>"#
        );
        assert_eq!(mailbox(6, Some("Zoë"), "a@b.example"), "=?UTF-8?Q?Zo=C3=AB?= <a@b.example>");
    }
}
