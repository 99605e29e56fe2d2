//! Checks the hash chain of an audit log. Reads entries in order; opens no store.

use std::fmt;
use std::str::FromStr;

use super::entry::{ChainedEntry, NO_HASH, hash_of};

/// A place in the log: the number and the hash of an entry. Written down elsewhere, it shows later whether the log up
/// to there is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainLink {
    pub(crate) number: u64,
    pub(crate) hash: String,
}

impl fmt::Display for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for ChainLink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "a number, a colon and 64 hexadecimal digits, as `audit verify` prints".to_owned();
        let (number, hash) = text.split_once(':').ok_or_else(wrong)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = number.parse().ok().filter(|_| is_hash).ok_or_else(wrong)?;
        Ok(Self { number, hash: hash.to_ascii_lowercase() })
    }
}

/// The action of the entry that stands for deleted ones; its `after` has the last deleted one.
pub(crate) const PRUNE: &str = "audit.prune";

/// A check under way.
#[derive(Debug, Default)]
pub(crate) struct ChainCheck {
    /// The entry before the first one, if that is not the first of all.
    begin: Option<ChainLink>,
    last: Option<ChainLink>,
    pub(crate) entries: u64,
    /// Up to where entries were deleted by the server, as it says.
    pruned: Vec<ChainLink>,
    /// Links that are known from elsewhere and were not met yet.
    expected: Vec<ChainLink>,
}

impl ChainCheck {
    pub(crate) fn expecting(expected: Vec<ChainLink>) -> Self {
        Self { expected, ..Self::default() }
    }

    /// Takes the next entry. An error says what is wrong with it.
    pub(crate) fn add(&mut self, chained: &ChainedEntry) -> Result<(), String> {
        let entry = chained.read().map_err(|error| format!("an entry cannot be read: {error}"))?;
        let number = entry.number;
        let hash = hash_of(chained.entry.get());
        if hash != chained.hash {
            return Err(format!(
                "entry {number} was changed: its hash is {hash}, not {}",
                chained.hash
            ));
        }
        match &self.last {
            None if number == 1 && entry.previous == NO_HASH => {}
            None if number > 1 => {
                let hash = entry.previous.clone();
                self.begin = Some(ChainLink { number: number - 1, hash });
            }
            None => return Err(format!("entry {number} is not the first one")),
            Some(last) if number != last.number + 1 => {
                return Err(format!(
                    "entry {number} follows entry {}: some are missing",
                    last.number
                ));
            }
            Some(last) if entry.previous != last.hash => {
                return Err(format!(
                    "entry {number} does not follow the entry before: one was replaced"
                ));
            }
            Some(_) => {}
        }
        if entry.action == PRUNE
            && let Some(link) = entry.after.as_ref().and_then(pruned_upto)
        {
            self.pruned.push(link);
        }
        let link = ChainLink { number, hash };
        if let Some(known) = self.expected.iter().find(|known| known.number == number)
            && *known != link
        {
            return Err(format!("entry {number} has the hash {}, not {}", link.hash, known.hash));
        }
        self.expected.retain(|known| *known != link);
        self.last = Some(link);
        self.entries += 1;
        Ok(())
    }

    /// The last link if all is well.
    pub(crate) fn finish(mut self) -> Result<Option<ChainLink>, String> {
        if let Some(begin) = &self.begin {
            if !self.pruned.contains(begin) {
                let first = begin.number + 1;
                return Err(format!(
                    "the log begins with entry {first}, and no entry says that those before were deleted"
                ));
            }
            // What was known from elsewhere and is deleted by now cannot be checked any more.
            self.expected.retain(|known| known.number >= begin.number && known != begin);
        }
        match self.expected.first() {
            Some(missing) => Err(format!("entry {} is missing", missing.number)),
            None => Ok(self.last),
        }
    }
}

fn pruned_upto(after: &serde_json::Value) -> Option<ChainLink> {
    Some(ChainLink { number: after["upto"].as_u64()?, hash: after["hash"].as_str()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use postrider_core::Timestamp;
    use serde_json::json;

    use super::super::entry::NewAuditEntry;
    use super::*;

    fn log(actions: &[(&str, Option<serde_json::Value>)]) -> Vec<ChainedEntry> {
        let mut previous = NO_HASH.to_owned();
        let mut entries = Vec::new();
        for (number, (action, after)) in (1..).zip(actions) {
            let new = NewAuditEntry {
                at: Timestamp(1_000 * number),
                action: (*action).to_owned(),
                after: after.clone(),
                ..NewAuditEntry::default()
            };
            let (record, hash) = new.chained(number as u64, &previous, "x").unwrap();
            previous = hash;
            entries.push(ChainedEntry::parse(&record.text).unwrap());
        }
        entries
    }

    fn check<'a>(
        entries: impl IntoIterator<Item = &'a ChainedEntry>,
        expected: Vec<ChainLink>,
    ) -> Result<Option<ChainLink>, String> {
        let mut check = ChainCheck::expecting(expected);
        for entry in entries {
            check.add(entry)?;
        }
        check.finish()
    }

    #[test]
    fn a_changed_missing_or_moved_entry_is_noticed() {
        let entries = log(&[("a", None), ("b", None), ("c", None)]);
        let last = check(&entries, Vec::new()).unwrap().unwrap();
        assert_eq!(last.number, 3);
        assert_eq!(check(&entries, vec![last.clone()]).unwrap(), Some(last.clone()));
        let changed = entries[1].entry.get().replace("\"b\"", "\"x\"");
        let (hash, old) = (entries[1].hash.clone(), &entries);
        let changed = |hash: String| {
            let entry = serde_json::value::RawValue::from_string(changed.clone()).unwrap();
            check([&old[0], &ChainedEntry { hash, entry }, &old[2]], Vec::new()).unwrap_err()
        };
        assert!(changed(hash).contains("entry 2 was changed"));
        let new_hash = hash_of(&entries[1].entry.get().replace("\"b\"", "\"x\""));
        assert!(changed(new_hash).contains("entry 3 does not follow"));
        let missing = check([&entries[0], &entries[2]], Vec::new()).unwrap_err();
        assert!(missing.contains("some are missing"), "{missing}");
        let cut = check(&entries[..2], vec![last.clone()]).unwrap_err();
        assert!(cut.contains("entry 3 is missing"), "{cut}");
        let other = ChainLink { hash: NO_HASH.to_owned(), ..last };
        assert!(check(&entries, vec![other]).unwrap_err().contains("has the hash"));
        assert_eq!(check(&[], Vec::new()), Ok(None));
    }

    #[test]
    fn a_log_may_begin_later_only_if_it_says_so() {
        let entries = log(&[("a", None), ("b", None), ("c", None)]);
        let unsaid = check(&entries[1..], Vec::new()).unwrap_err();
        assert!(unsaid.contains("begins with entry 2"), "{unsaid}");
        let after = json!({"upto": 1, "hash": entries[0].hash});
        let said = log(&[("a", None), ("b", None), (PRUNE, Some(after))]);
        let first = ChainLink { number: 1, hash: said[0].hash.clone() };
        assert!(check(&said[1..], vec![first]).is_ok());
        assert!(check(&said[2..], Vec::new()).is_err(), "more is missing than it says");
    }

    #[test]
    fn a_link_is_read_as_it_is_written() {
        let link = ChainLink { number: 7, hash: "ab".repeat(32) };
        assert_eq!(link.to_string().parse(), Ok(link));
        for wrong in ["", "7", "7:ab", "x:00"] {
            assert!(wrong.parse::<ChainLink>().is_err(), "{wrong}");
        }
    }
}
