//! Lines that were read and are not yet on their way to the disk: bounded by number and by bytes.

use std::collections::VecDeque;

use super::split::BatchLine;

/// Lines that become durable together.
const GROUP_LINES: usize = 512;
/// With so much waiting, no more is read. Lines may be a megabyte each.
const ENOUGH_BYTES: usize = 2 << 20;

#[derive(Default)]
pub(super) struct LineQueue {
    lines: VecDeque<BatchLine>,
    bytes: usize,
}

impl LineQueue {
    /// Adds what `read` puts at the end.
    pub(super) fn add(&mut self, read: impl FnOnce(&mut VecDeque<BatchLine>)) {
        let before = self.lines.len();
        read(&mut self.lines);
        self.bytes += self.lines.iter().skip(before).map(BatchLine::len).sum::<usize>();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn is_enough(&self) -> bool {
        self.lines.len() >= GROUP_LINES || self.bytes >= ENOUGH_BYTES
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
    fn a_few_large_lines_are_enough() {
        let mut queue = LineQueue::default();
        add(&mut queue, 1, 1 << 20);
        assert!(!queue.is_enough());
        add(&mut queue, 1, 1 << 20);
        assert!(queue.is_enough());
        assert_eq!(queue.take_group().len(), 2);
        assert!(queue.is_empty() && !queue.is_enough());
    }

    #[test]
    fn many_small_lines_are_enough_and_go_in_groups() {
        let mut queue = LineQueue::default();
        add(&mut queue, 511, 10);
        assert!(!queue.is_enough());
        add(&mut queue, 2, 10);
        assert!(queue.is_enough());
        assert_eq!(queue.take_group().len(), 512);
        assert!(!queue.is_enough() && !queue.is_empty());
        assert_eq!((queue.take_group().len(), queue.bytes), (1, 0));
    }
}
