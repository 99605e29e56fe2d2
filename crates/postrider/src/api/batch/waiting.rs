//! Lines that were read and are not yet on their way to the disk: bounded by number and by bytes.

use std::collections::VecDeque;

use super::split::Line;

/// Lines that become durable together.
const GROUP_LINES: usize = 512;
/// With so much waiting, no more is read. Lines may be a megabyte each.
const ENOUGH_BYTES: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
}

impl Waiting {
    /// Adds what `read` puts at the end.
    pub(super) fn add(&mut self, read: impl FnOnce(&mut VecDeque<Line>)) {
        let before = self.lines.len();
        read(&mut self.lines);
        self.bytes += self.lines.iter().skip(before).map(Line::len).sum::<usize>();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn is_enough(&self) -> bool {
        self.lines.len() >= GROUP_LINES || self.bytes >= ENOUGH_BYTES
    }

    pub(super) fn take_group(&mut self) -> Vec<Line> {
        let size = self.lines.len().min(GROUP_LINES);
        let group: Vec<_> = self.lines.drain(..size).collect();
        self.bytes -= group.iter().map(Line::len).sum::<usize>();
        group
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn add(waiting: &mut Waiting, lines: usize, bytes: usize) {
        let line = Bytes::from(vec![b'x'; bytes]);
        waiting.add(|out| out.extend((0..lines).map(|_| Line::Text(line.clone()))));
    }

    #[test]
    fn a_few_large_lines_are_enough() {
        let mut waiting = Waiting::default();
        add(&mut waiting, 1, 1 << 20);
        assert!(!waiting.is_enough());
        add(&mut waiting, 1, 1 << 20);
        assert!(waiting.is_enough());
        assert_eq!(waiting.take_group().len(), 2);
        assert!(waiting.is_empty() && !waiting.is_enough());
    }

    #[test]
    fn many_small_lines_are_enough_and_go_in_groups() {
        let mut waiting = Waiting::default();
        add(&mut waiting, 511, 10);
        assert!(!waiting.is_enough());
        add(&mut waiting, 2, 10);
        assert!(waiting.is_enough());
        assert_eq!(waiting.take_group().len(), 512);
        assert!(!waiting.is_enough() && !waiting.is_empty());
        assert_eq!((waiting.take_group().len(), waiting.bytes), (1, 0));
    }
}
