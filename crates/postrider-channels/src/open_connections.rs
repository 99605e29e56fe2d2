//! Counts the open connections of an account that has connections of its own, such as those to a relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Clone, Default)]
pub(crate) struct OpenConnections(Arc<AtomicUsize>);

/// Counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnections {
    pub(crate) fn open(&self) -> OpenConnection {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_is_dropped() {
        let connections = OpenConnections::default();
        let (first, second) = (connections.open(), connections.open());
        assert_eq!(connections.count(), 2);
        drop(first);
        assert_eq!(connections.count(), 1);
        drop(second);
        assert_eq!(connections.count(), 0);
    }
}
