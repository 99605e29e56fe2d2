//! Regions: places where workers run. A tenant can be pinned to one; then only workers of that region send for it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A store has at most so many regions.
pub const REGIONS_MAX: usize = 4;

/// A region by its place in the list of the store. Its name is known outside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RegionNumber(u8);

impl RegionNumber {
    /// `None` beyond [`REGIONS_MAX`].
    pub fn new(place: usize) -> Option<Self> {
        (place < REGIONS_MAX).then_some(Self(place as u8))
    }

    pub fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for RegionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
