//! Writes a damaged journal anew, with every frame that is intact or can be corrected, so that SQLite takes all
//! of them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use postrider_core::ports::store::{StoreError, StoreResult};

use super::checksum::JournalChecksum;
use super::frames::{FRAME, FRAME_HEADER, JournalFrame, JournalFrames, PAGE, offset};
use crate::embedded::folder::private_file;
use crate::embedded::fsck::MendedJournal;

/// Writes `to` from the journal `from`. `known` is the last frame that was durable for sure.
pub(crate) fn mend(from: &Path, to: &Path, known: Option<usize>) -> StoreResult<MendedJournal> {
    let error = |error| StoreError::io("cannot mend the journal", error);
    let Some(mut journal) = JournalFrames::read(from)? else { return Ok(MendedJournal::default()) };
    let source = File::open(from).map_err(error)?;
    let mut mended = MendedJournal { frames: journal.frames.len(), ..MendedJournal::default() };
    let corrections = correct(&source, &mut journal);
    mended.corrected = corrections.len();
    let kept = journal.frames.iter().rposition(|frame| frame.intact && frame.commits);
    let kept = &journal.frames[..kept.map_or(0, |last| last + 1)];
    let target = private_file(to).map_err(error)?;
    target.set_len(0).map_err(error)?;
    let mut out = BufWriter::new(&target);
    let mut header = journal.header;
    header[..16].copy_from_slice(&journal.head());
    header[16..24].copy_from_slice(&journal.salts);
    let mut checksum = JournalChecksum::default().over(&header[..24], journal.big_endian);
    header[24..].copy_from_slice(&checksum.to_bytes());
    out.write_all(&header).map_err(error)?;
    let mut bytes = vec![0; FRAME];
    for (index, frame) in kept.iter().enumerate() {
        if !frame.intact {
            mended.lost += 1;
            let rewritten =
                kept[index..].iter().any(|later| later.intact && later.page == frame.page);
            if !rewritten && !mended.stale_pages.contains(&frame.page) {
                mended.stale_pages.push(frame.page);
            }
            continue;
        }
        match corrections.iter().find(|(corrected, _)| *corrected == index) {
            Some((_, corrected)) => bytes.copy_from_slice(corrected),
            None => source.read_exact_at(&mut bytes, offset(index)).map_err(error)?,
        }
        bytes[8..16].copy_from_slice(&journal.salts);
        checksum = journal.checksum_of(&bytes, checksum);
        bytes[16..FRAME_HEADER].copy_from_slice(&checksum.to_bytes());
        out.write_all(&bytes).map_err(error)?;
    }
    mended.lost += known.unwrap_or(0).saturating_sub(kept.len());
    out.flush().map_err(error)?;
    target.sync_all().map_err(error)?;
    Ok(mended)
}

impl JournalFrames {
    /// Magic number, version, page size and number of checkpoints.
    fn head(&self) -> [u8; 16] {
        let mut head = [0; 16];
        let magic: u32 = if self.big_endian { 0x377f_0683 } else { 0x377f_0682 };
        head[..4].copy_from_slice(&magic.to_be_bytes());
        head[4..8].copy_from_slice(&3_007_000u32.to_be_bytes());
        head[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
        head[12..].copy_from_slice(&self.header[12..16]);
        head
    }
}

/// Finds frames with a single wrong bit: the checksum tells which one. Marks them as intact.
fn correct(source: &File, journal: &mut JournalFrames) -> Vec<(usize, Vec<u8>)> {
    let mut corrections = Vec::new();
    // Behind the end there are old frames, which nobody wants back.
    let first_old = |frame: &JournalFrame| frame.salts_match || frame.intact;
    let end = journal.frames.iter().rposition(first_old).map_or(0, |last| last + 1);
    for index in 0..end {
        if journal.frames[index].intact {
            continue;
        }
        let mut bytes = vec![0; FRAME];
        let mut before = [0; 8];
        let at = if index == 0 { 24 } else { offset(index - 1) + 16 };
        let read = source
            .read_exact_at(&mut bytes, offset(index))
            .and_then(|()| source.read_exact_at(&mut before, at));
        let seed = JournalChecksum::from_bytes(&before);
        if read.is_ok() && correct_bit(journal, &mut bytes, seed) {
            let commits = bytes[4..8] != [0; 4];
            let page = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let good = &mut journal.frames[index];
            (good.intact, good.commits, good.page) = (true, commits, page);
            corrections.push((index, bytes));
        }
    }
    corrections
}

fn correct_bit(journal: &JournalFrames, bytes: &mut [u8], seed: JournalChecksum) -> bool {
    let stored = JournalChecksum::from_bytes(&bytes[16..FRAME_HEADER]);
    for at in (0..8).chain(FRAME_HEADER..FRAME) {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if journal.checksum_of(bytes, seed) == stored {
                return true;
            }
            bytes[at] ^= 1 << bit;
        }
    }
    false
}
