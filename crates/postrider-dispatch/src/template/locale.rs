//! Locales: how they are written, and which one is used if the requested one does not exist. Pure.

/// What may be written for a locale.
pub(super) const ALLOWED: &str = "a language tag such as en, de-AT or zh-Hant-TW";
const LENGTH_MAX: usize = 35;

/// One spelling for all: small letters, parts joined by `-`. None if it is no language tag.
pub(super) fn normalise(written: &str) -> Option<String> {
    let key = written.to_ascii_lowercase().replace('_', "-");
    let part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let starts = key.split('-').next().is_some_and(|language| {
        language.len() >= 2 && language.bytes().all(|b| b.is_ascii_alphabetic())
    });
    (starts && key.len() <= LENGTH_MAX && key.split('-').all(part)).then_some(key)
}

/// The requested locale, then the same with fewer and fewer parts: `zh-hant-tw`, `zh-hant`, `zh`.
pub(super) fn candidates(key: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(key), |key| key.rsplit_once('-').map(|(rest, _)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_in_any_spelling_and_nonsense_is_not() {
        for (written, key) in [("de", "de"), ("DE_at", "de-at"), ("zh-Hant-TW", "zh-hant-tw")] {
            assert_eq!(normalise(written).as_deref(), Some(key));
        }
        for wrong in ["", "d", "de-", "-de", "de--at", "d1", "de/at", "deutschland", "de at"] {
            assert_eq!(normalise(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn parts_are_given_up_from_the_end() {
        let all: Vec<_> = candidates("zh-hant-tw").collect();
        assert_eq!(all, ["zh-hant-tw", "zh-hant", "zh"]);
    }
}
