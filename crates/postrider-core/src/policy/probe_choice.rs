//! Which of the due deliveries try whether a provider works again: those that tell most about it. Pure.

/// A delivery as a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTraits<A> {
    pub address: A,
    /// The address worked before.
    pub is_served: bool,
    /// It was tried lately, in vain.
    pub is_tried: bool,
    /// How often it was tried.
    pub tries: u32,
}

/// Keeps up to `most`: those to addresses that worked before, of these those that were not tried lately, then first
/// attempts, then retries, each to another address. Returns the others.
pub fn keep_best<T, A: PartialEq>(
    due: &mut Vec<T>,
    most: usize,
    probe: impl Fn(&T) -> ProbeTraits<A>,
) -> Vec<T> {
    due.sort_by_key(|one| {
        let ProbeTraits { is_served, is_tried, tries, .. } = probe(one);
        (!is_served, is_tried, tries)
    });
    let mut seen = Vec::with_capacity(most);
    let others = due.extract_if(.., |one| {
        let ProbeTraits { address, .. } = probe(one);
        let is_new = seen.len() < most && !seen.contains(&address);
        if is_new {
            seen.push(address);
        }
        !is_new
    });
    others.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(&(tries, address): &(u32, char)) -> ProbeTraits<char> {
        ProbeTraits { address, is_served: "ef".contains(address), is_tried: address == 'f', tries }
    }

    #[test]
    fn addresses_that_were_tried_lately_come_last() {
        let mut due = vec![(0, 'f'), (1, 'e'), (0, 'a')];
        keep_best(&mut due, 2, probe);
        assert_eq!(due, [(1, 'e'), (0, 'f')], "of those that worked before");
    }

    #[test]
    fn addresses_that_worked_before_are_tried_first() {
        let mut due = vec![(0, 'a'), (0, 'b'), (1, 'e'), (0, 'e')];
        keep_best(&mut due, 2, probe);
        assert_eq!(due, [(0, 'e'), (0, 'a')]);
    }

    #[test]
    fn first_attempts_to_different_addresses_are_tried_before_retries() {
        let mut due = vec![(3, 'a'), (0, 'b'), (0, 'b'), (1, 'c'), (0, 'd')];
        let others = keep_best(&mut due, 3, probe);
        assert_eq!(due, [(0, 'b'), (0, 'd'), (1, 'c')]);
        assert_eq!(others, [(0, 'b'), (3, 'a')]);
    }
}
