//! Counts the segments of a text message, which set its price: 160 septets of GSM-7 or 70 units of UCS-2, a little less
//! if there are several.

/// The characters of GSM 03.38 that take one septet.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// The characters that take two septets: an escape and a code.
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SmsEncoding {
    Gsm7,
    Ucs2,
}

impl SmsEncoding {
    /// The units of a single segment, and of one of several.
    fn room(self) -> (usize, usize) {
        match self {
            Self::Gsm7 => (160, 153),
            Self::Ucs2 => (70, 67),
        }
    }

    /// Septets or UTF-16 units of one character; `None` if it cannot be written in this encoding.
    fn units(self, c: char) -> Option<usize> {
        match self {
            Self::Gsm7 if BASIC.contains(c) => Some(1),
            Self::Gsm7 if EXTENDED.contains(c) => Some(2),
            Self::Gsm7 => None,
            Self::Ucs2 => Some(c.len_utf16()),
        }
    }
}

/// The size of a text as a short message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    pub encoding: SmsEncoding,
    /// Septets or UTF-16 units.
    pub units: usize,
    /// At least 1.
    pub count: u32,
}

/// Measures a text. One character outside of GSM-7 makes the whole message UCS-2.
pub fn of(text: &str) -> Segments {
    let gsm = || text.chars().all(|c| SmsEncoding::Gsm7.units(c).is_some());
    let encoding = if gsm() { SmsEncoding::Gsm7 } else { SmsEncoding::Ucs2 };
    let (alone, shared) = encoding.room();
    let sizes = || text.chars().filter_map(|c| encoding.units(c));
    let units: usize = sizes().sum();
    if units <= alone {
        return Segments { encoding, units, count: 1 };
    }
    // An escape or a surrogate pair is not split, so the last unit of a segment may be unused.
    let (mut count, mut filled) = (1u32, 0);
    for size in sizes() {
        if filled + size > shared {
            count = count.saturating_add(1);
            filled = 0;
        }
        filled += size;
    }
    Segments { encoding, units, count }
}

/// The text in the parts that are sent as one segment each. There is at least one.
pub fn split(text: &str) -> Vec<&str> {
    let Segments { encoding, count, .. } = of(text);
    let room = encoding.room().1;
    if count == 1 {
        return vec![text];
    }
    let (mut parts, mut start, mut filled) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        let size = encoding.units(c).unwrap_or(1);
        if filled + size > room {
            parts.push(&text[start..at]);
            (start, filled) = (at, 0);
        }
        filled += size;
    }
    parts.push(&text[start..]);
    parts
}

/// The second septets of [`EXTENDED`], in its order.
const EXTENDED_CODES: [u8; 10] = [0x0a, 0x14, 0x28, 0x29, 0x2f, 0x3c, 0x3d, 0x3e, 0x40, 0x65];
const ESCAPE: u8 = 0x1b;

/// The text as a message centre expects it: a septet per byte, or UTF-16 in network order.
pub fn encode(text: &str) -> (SmsEncoding, Vec<u8>) {
    let encoding = of(text).encoding;
    let bytes = match encoding {
        SmsEncoding::Ucs2 => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        SmsEncoding::Gsm7 => text.chars().flat_map(septets).flatten().collect(),
    };
    (encoding, bytes)
}

/// An escape, if the character needs one, and the code.
fn septets(c: char) -> [Option<u8>; 2] {
    let nth = |table: &str| table.chars().position(|known| known == c);
    if let Some(nth) = nth(BASIC) {
        // The table does not contain the escape.
        let code = nth + usize::from(nth >= usize::from(ESCAPE));
        return [None, u8::try_from(code).ok()];
    }
    let code = nth(EXTENDED).and_then(|nth| EXTENDED_CODES.get(nth).copied());
    [code.map(|_| ESCAPE), code]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn counts(text: &str, encoding: SmsEncoding, units: usize, count: u32) {
        assert_eq!(of(text), Segments { encoding, units, count });
    }

    #[test]
    fn plain_text_has_160_septets_and_153_in_company() {
        use SmsEncoding::Gsm7;
        counts("", Gsm7, 0, 1);
        counts(&"a".repeat(160), Gsm7, 160, 1);
        counts(&"a".repeat(161), Gsm7, 161, 2);
        counts(&"a".repeat(306), Gsm7, 306, 2);
        counts(&"a".repeat(307), Gsm7, 307, 3);
        counts("Grüße an Åsa: 5 ¥ für Ω", Gsm7, 23, 1);
    }

    #[test]
    fn an_escaped_character_takes_two_and_is_never_torn() {
        use SmsEncoding::Gsm7;
        counts(&"€".repeat(80), Gsm7, 160, 1);
        counts(&"€".repeat(81), Gsm7, 162, 2);
        let long = "Grüße €\u{1f4e6} ".repeat(40);
        for text in ["", "a", &"€".repeat(161), &"x".repeat(161), &long] {
            let parts = split(text);
            assert_eq!(parts.len() as u32, of(text).count, "{text}");
            assert_eq!(parts.concat(), text);
        }
        // 76 of them fill 152 of 153 septets; the 77th begins the next segment.
        counts(&"€".repeat(153), Gsm7, 306, 3);
    }

    #[test]
    fn every_character_has_the_code_that_the_standard_gives_it() {
        let gsm = |text: &str| encode(text).1;
        assert_eq!(gsm("@Δ Ξ"), [0x00, 0x10, 0x20, 0x1a]);
        assert_eq!(gsm("ÆÉ!1AZa"), [0x1c, 0x1f, 0x21, 0x31, 0x41, 0x5a, 0x61]);
        assert_eq!(gsm("ÄÜ§¿zäà"), [0x5b, 0x5e, 0x5f, 0x60, 0x7a, 0x7b, 0x7f]);
        assert_eq!(gsm("€["), [0x1b, 0x65, 0x1b, 0x3c]);
        assert_eq!(encode("ń😀"), (SmsEncoding::Ucs2, vec![0x01, 0x44, 0xd8, 0x3d, 0xde, 0x00]));
    }

    #[test]
    fn one_other_character_makes_it_ucs_2() {
        use SmsEncoding::Ucs2;
        counts(&format!("{}ń", "a".repeat(69)), Ucs2, 70, 1);
        counts(&format!("{}ń", "a".repeat(70)), Ucs2, 71, 2);
        counts(&"字".repeat(134), Ucs2, 134, 2);
        counts(&"字".repeat(135), Ucs2, 135, 3);
    }

    #[test]
    fn an_emoji_is_two_units_and_is_never_torn() {
        use SmsEncoding::Ucs2;
        counts(&"😀".repeat(35), Ucs2, 70, 1);
        counts(&"😀".repeat(36), Ucs2, 72, 2);
        // 33 of them fill 66 of 67 units.
        counts(&"😀".repeat(67), Ucs2, 134, 3);
    }
}
