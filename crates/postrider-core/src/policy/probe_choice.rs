//! Which of the due deliveries try whether a provider works again: those that tell most about it. Pure.

/// Keeps up to `most`: first attempts before retries, each to another address. Returns the others. `probe` says
/// how often one was tried, and its address.
pub fn keep_best<T, A: PartialEq>(
    due: &mut Vec<T>,
    most: usize,
    probe: impl Fn(&T) -> (u32, A),
) -> Vec<T> {
    due.sort_by_key(|one| probe(one).0);
    let mut seen = Vec::with_capacity(most);
    let others = due.extract_if(.., |one| {
        let (_, address) = probe(one);
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

    #[test]
    fn first_attempts_to_different_addresses_are_tried_before_retries() {
        let mut due = vec![(3, 'a'), (0, 'b'), (0, 'b'), (1, 'c'), (0, 'd')];
        let others = keep_best(&mut due, 3, |one| *one);
        assert_eq!(due, [(0, 'b'), (0, 'd'), (1, 'c')]);
        assert_eq!(others, [(0, 'b'), (3, 'a')]);
    }
}
