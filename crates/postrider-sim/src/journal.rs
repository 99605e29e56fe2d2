//! The part of SQLite's journal format that is needed to tear it: a header of 32 bytes, then frames of
//! 24 bytes and a page. A frame that ends a transaction is marked.

const HEADER: usize = 32;
const FRAME: usize = 24;

/// The journal after a power cut during the first write after `before`: a part of that transaction, and
/// its last bytes are garbage.
pub(crate) fn torn(before: &[u8], after: &[u8], part: f64) -> Vec<u8> {
    let kept = valid(before).map_or(0, |(_, end)| end);
    let started_over = before.get(..HEADER) != after.get(..HEADER);
    let Some((commits, _)) = valid(after) else { return before.to_vec() };
    let from = if started_over { HEADER } else { kept.max(HEADER) };
    let Some(end) = commits.into_iter().find(|end| *end > from) else { return before.to_vec() };
    if started_over && kept > HEADER {
        // The old frames are in the database already and no longer count.
        return before.to_vec();
    }
    let length = from + ((end - from - 1) as f64 * part.clamp(0.0, 1.0)) as usize;
    let mut torn = after[..length].to_vec();
    // The last sector may contain anything.
    let sector = torn.len().saturating_sub(512).max(from);
    torn[sector..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(7));
    torn
}

/// Where each transaction of the journal ends, and where the last one does.
fn valid(journal: &[u8]) -> Option<(Vec<usize>, usize)> {
    let word = |at: usize| {
        let bytes = journal.get(at..at + 4)?;
        Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let page = word(8)? as usize;
    let salt = journal.get(16..24)?;
    let mut commits = Vec::new();
    let mut at = HEADER;
    while journal.len() >= at + FRAME + page && journal.get(at + 8..at + 16) == Some(salt) {
        let ends_transaction = word(at + 4)? != 0;
        at += FRAME + page;
        if ends_transaction {
            commits.push(at);
        }
    }
    let end = commits.last().copied()?;
    Some((commits, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(commits: &[bool]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[8..12].copy_from_slice(&16_u32.to_be_bytes());
        bytes[16..24].copy_from_slice(b"saltsalt");
        for (n, commit) in commits.iter().enumerate() {
            let mut frame = vec![n as u8; FRAME + 16];
            frame[4..8].copy_from_slice(&u32::from(*commit).to_be_bytes());
            frame[8..16].copy_from_slice(b"saltsalt");
            bytes.extend(frame);
        }
        bytes
    }

    #[test]
    fn only_the_write_under_way_is_torn() {
        let before = journal(&[false, true]);
        let after = journal(&[false, true, false, false, true, true]);
        for part in [0.0, 0.3, 0.99, 1.0] {
            let torn = torn(&before, &after, part);
            assert_eq!(torn[..before.len()], before[..], "what was there stays");
            assert!(torn.len() < before.len() + 3 * 40, "the transaction is not whole at {part}");
        }
    }

    #[test]
    fn a_write_that_left_no_trace_leaves_the_journal_as_it_was() {
        let before = journal(&[true]);
        assert_eq!(torn(&before, &before, 0.5), before);
    }
}
