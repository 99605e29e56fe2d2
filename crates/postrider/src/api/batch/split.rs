//! Splits a stream of frames into lines. Does not copy a line that is within one frame.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

#[derive(Debug, PartialEq, Eq)]
pub(in crate::api) enum BatchLine {
    Text(Bytes),
    /// Longer than allowed; its bytes were dropped.
    TooLong,
}

impl BatchLine {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::TooLong => 0,
        }
    }
}

pub(in crate::api) struct Splitter {
    max: usize,
    /// The beginning of an incomplete line.
    begun: BytesMut,
    /// The current line is too long: skip to its end.
    skipping: bool,
}

impl Splitter {
    pub(in crate::api) fn new(max: usize) -> Self {
        Self { max, begun: BytesMut::new(), skipping: false }
    }

    pub(in crate::api) fn push(&mut self, frame: Bytes, out: &mut VecDeque<BatchLine>) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &frame) {
            let piece = frame.slice(start..end);
            start = end + 1;
            self.end_line(piece, out);
        }
        self.begin(&frame[start..]);
    }

    /// The last line needs no line feed.
    pub(in crate::api) fn finish(&mut self, out: &mut VecDeque<BatchLine>) {
        self.end_line(Bytes::new(), out);
    }

    fn end_line(&mut self, piece: Bytes, out: &mut VecDeque<BatchLine>) {
        if std::mem::take(&mut self.skipping) {
            out.push_back(BatchLine::TooLong);
            return;
        }
        let line = if self.begun.is_empty() {
            piece
        } else {
            self.begun.extend_from_slice(&piece);
            self.begun.split().freeze()
        };
        if line.len() > self.max {
            out.push_back(BatchLine::TooLong);
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            out.push_back(BatchLine::Text(line));
        }
    }

    fn begin(&mut self, rest: &[u8]) {
        if self.skipping || self.begun.len() + rest.len() > self.max {
            self.skipping = true;
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(frames: &[&str], max: usize) -> Vec<String> {
        let mut splitter = Splitter::new(max);
        let mut out = VecDeque::new();
        for frame in frames {
            splitter.push(Bytes::copy_from_slice(frame.as_bytes()), &mut out);
        }
        splitter.finish(&mut out);
        out.into_iter()
            .map(|line| match line {
                BatchLine::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                BatchLine::TooLong => "too long".to_owned(),
            })
            .collect()
    }

    #[test]
    fn lines_are_the_same_wherever_the_frames_are_cut() {
        let whole = "{\"a\":1}\n\n  \r\n{\"b\":22}\n{\"c\":3}";
        let want = vec!["{\"a\":1}", "{\"b\":22}", "{\"c\":3}"];
        assert_eq!(split(&[whole], 100), want);
        for cut in 0..=whole.len() {
            assert_eq!(split(&[&whole[..cut], &whole[cut..]], 100), want, "cut at {cut}");
        }
        let bytes: Vec<_> = whole.split("").collect();
        assert_eq!(split(&bytes, 100), want);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        for frames in [vec!["12345678901\nok\n"], vec!["123456", "78901\nok"], vec!["12345678901"]]
        {
            let lines = split(&frames, 10);
            assert_eq!(lines[0], "too long", "{frames:?}");
            assert!(lines.len() == 1 || lines[1] == "ok");
        }
        assert_eq!(split(&["1234567890\n"], 10), ["1234567890"]);
    }

    #[test]
    fn no_framing_breaks_the_splitter_when_it_is_fuzzed() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let seeds: [&[u8]; 2] = [b"{}\n{\"a\":1}\r\n\n \nx", b"\n\n\n"];
        postrider_testkit::fuzz::fuzz("ndjson", &corpus, &seeds, |bytes| {
            let (mut lines, mut splitter) = (VecDeque::new(), Splitter::new(50));
            let step = bytes.len() % 7 + 1;
            for frame in bytes.chunks(step) {
                splitter.push(Bytes::copy_from_slice(frame), &mut lines);
            }
            splitter.finish(&mut lines);
            let mut whole = VecDeque::new();
            let mut at_once = Splitter::new(50);
            at_once.push(Bytes::copy_from_slice(bytes), &mut whole);
            at_once.finish(&mut whole);
            assert_eq!(lines, whole, "frames do not matter");
        });
    }
}
