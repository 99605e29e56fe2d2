//! Lines that were read and wait to be written to disk: bounded by number and by bytes.

use std::collections::VecDeque;

use super::split::BatchLine;

/// Lines that become durable together: a message and a delivery each are what the store takes in one transaction.
const GROUP_LINES: usize = 500;
/// At this size, reading stops. A line may have a megabyte.
const FULL_BYTES: usize = 2 << 20;

#[derive(Default)]
pub(super) struct LineQueue {
    lines: VecDeque<BatchLine>,
    bytes: usize,
}

impl LineQueue {
    /// Adds the lines that `read` appends.
    pub(super) fn add(&mut self, read: impl FnOnce(&mut VecDeque<BatchLine>)) {
        let before = self.lines.len();
        read(&mut self.lines);
        self.bytes += self.lines.iter().skip(before).map(BatchLine::len).sum::<usize>();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= GROUP_LINES || self.bytes >= FULL_BYTES
    }

    pub(super) fn take_group(&mut self) -> Vec<BatchLine> {
        let size = self.lines.len().min(GROUP_LINES);
        let group: Vec<_> = self.lines.drain(..size).collect();
        self.bytes -= group.iter().map(BatchLine::len).sum::<usize>();
        group
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn add(queue: &mut LineQueue, lines: usize, bytes: usize) {
        let line = Bytes::from(vec![b'x'; bytes]);
        queue.add(|out| out.extend((0..lines).map(|_| BatchLine::Text(line.clone()))));
    }

    #[test]
    fn a_few_large_lines_fill_the_queue() {
        let mut queue = LineQueue::default();
        add(&mut queue, 1, 1 << 20);
        assert!(!queue.is_full());
        add(&mut queue, 1, 1 << 20);
        assert!(queue.is_full());
        assert_eq!(queue.take_group().len(), 2);
        assert!(queue.is_empty() && !queue.is_full());
    }

    #[test]
    fn many_small_lines_fill_the_queue_and_leave_in_groups() {
        let mut queue = LineQueue::default();
        add(&mut queue, GROUP_LINES - 1, 10);
        assert!(!queue.is_full());
        add(&mut queue, 2, 10);
        assert!(queue.is_full());
        assert_eq!(queue.take_group().len(), GROUP_LINES);
        assert!(!queue.is_full() && !queue.is_empty());
        assert_eq!((queue.take_group().len(), queue.bytes), (1, 0));
    }
}
