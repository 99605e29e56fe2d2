//! The limit of open files, and how many connections fit into it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The rest is for the API's callers, the store, mail relays and name lookups.
const SHARE: (u64, u64) = (3, 4);
/// Beyond this the memory of the connections counts more than their descriptors.
const CONNECTIONS_MAX: u64 = 20_000;
/// What is asked for where the system sets no limit.
const UNLIMITED: u64 = 65_536;

/// Raises the soft limit of open files to the hard one, and returns the limit that holds then.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (soft, wanted) = (limit.current.unwrap_or(UNLIMITED), limit.maximum.unwrap_or(UNLIMITED));
    if soft >= wanted {
        return soft;
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(soft, wanted, "the limit of open files could not be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED)
}

/// The connections that fit into the present limit.
pub(super) fn connections_that_fit() -> usize {
    fitting(getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED))
}

fn fitting(descriptors: u64) -> usize {
    let share = descriptors / SHARE.1 * SHARE.0;
    usize::try_from(share.clamp(1, CONNECTIONS_MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_three_quarters_of_the_descriptors_up_to_a_bound() {
        assert_eq!(fitting(1024), 768);
        assert_eq!(fitting(24_000), 18_000);
        assert_eq!(fitting(1 << 30), 20_000);
        assert_eq!(fitting(2), 1, "never none");
    }
}
