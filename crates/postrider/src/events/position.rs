//! A position in the log of events: a time, the server that wrote, and the place in what it wrote then. To callers it
//! is a text without a meaning.

use std::fmt;
use std::str::FromStr;

/// Everything up to here was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventPosition {
    /// In microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) writer: u64,
    /// Begins at 1; 0 is before the first event of a part.
    pub(crate) index: u32,
}

impl EventPosition {
    pub(crate) const START: Self = Self { at: 0, writer: 0, index: 0 };

    /// Before everything that is written at this time.
    pub(crate) fn before(at: i64) -> Self {
        Self { at, writer: 0, index: 0 }
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.at, self.writer, self.index)
    }
}

/// The text is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownPosition;

impl FromStr for EventPosition {
    type Err = UnknownPosition;

    fn from_str(text: &str) -> Result<Self, UnknownPosition> {
        let mut parts = text.splitn(3, '-');
        let mut part = || {
            let digits = parts.next().filter(|text| !text.starts_with('+'))?;
            u64::from_str_radix(digits, 16).ok()
        };
        let read = || {
            let (at, writer, index) = (part()?, part()?, part()?);
            Some(Self { at: i64::try_from(at).ok()?, writer, index: index.try_into().ok()? })
        };
        let mut read = read;
        read().ok_or(UnknownPosition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_leads_back() {
        let position = EventPosition { at: 1_790_000_000_000_000, writer: u64::MAX, index: 7 };
        assert_eq!(position.to_string().parse(), Ok(position));
        assert_eq!(EventPosition::START.to_string().parse(), Ok(EventPosition::START));
        for wrong in
            ["", "1", "1-2", "1-2-3-4", "g-1-1", "-1-1-1", "+1-1-1", "ffffffffffffffff-1-1"]
        {
            assert_eq!(wrong.parse::<EventPosition>(), Err(UnknownPosition), "{wrong}");
        }
    }
}
