//! The name of a worker as engines store it: with its region, so that all know who holds the shards of a region.

use std::fmt;

use postrider_core::RegionNumber;

/// Stands between the name and the place of the region. No name of a server contains it.
const BETWEEN: char = '@';

/// A worker and the region that it is in, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerName<'a> {
    pub(crate) name: &'a str,
    pub(crate) region: Option<usize>,
}

impl<'a> WorkerName<'a> {
    pub(crate) fn read(stored: &'a str) -> Self {
        let with_region = stored.rsplit_once(BETWEEN);
        let read = with_region.and_then(|(name, region)| Some((name, region.parse().ok()?)));
        match read {
            Some((name, region)) => Self { name, region: Some(region) },
            None => Self { name: stored, region: None },
        }
    }
}

impl fmt::Display for WorkerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region {
            Some(region) => write!(f, "{}{BETWEEN}{region}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// The regions that these workers are in, each once.
pub(crate) fn regions_of(names: &[String]) -> Vec<RegionNumber> {
    let places = names.iter().filter_map(|name| WorkerName::read(name).region);
    let mut regions: Vec<_> = places.filter_map(RegionNumber::new).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_region() {
        for region in [None, Some(0), Some(3)] {
            let name = WorkerName { name: "host-1:8080", region };
            assert_eq!(WorkerName::read(&name.to_string()), name);
        }
    }
}
