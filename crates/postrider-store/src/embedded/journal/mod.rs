//! Reads SQLite's journal (the write-ahead log) frame by frame, without SQLite. SQLite ends at the first frame
//! that it cannot verify and drops what follows without a word; this finds out what would be dropped. Changes
//! nothing, except [`mend_journal`].

mod checksum;
mod frames;
mod mend;
mod shared_memory;

use std::path::Path;

use postrider_core::ports::store::{StoreError, StoreResult};

use super::folder::{journal_of, shared_memory_of, sync_folder};
use super::fsck::MendedJournal;
use super::reserve::remove_if_there;
use super::shared::REPAIR;
use frames::JournalFrames;

/// Acknowledged work that SQLite would drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalDamage {
    /// The first frame that cannot be verified, from 1; 0 is the head of the journal.
    pub(crate) frame: usize,
    pub(crate) frames: usize,
    /// Transactions after it that can still be found.
    pub(crate) commits: usize,
}

/// Refuses a database whose journal is damaged. To be called before anybody opens it.
pub(crate) fn check_before_open(database: &Path) -> StoreResult<()> {
    let Some(damage) = damage_of(database)? else { return Ok(()) };
    let JournalDamage { frame, frames, commits } = damage;
    let what = format!(
        "the journal {} cannot be verified at frame {frame} of {frames}, and {commits} later transactions \
         with acknowledged work would be lost; nothing was changed; {REPAIR}, which keeps the old files, \
         saves what can be saved and lists the rest",
        journal_of(database).display()
    );
    Err(StoreError::Corrupt { what, cause: None })
}

/// `None` if SQLite finds everything that was acknowledged, as far as can be told.
pub(crate) fn damage_of(database: &Path) -> StoreResult<Option<JournalDamage>> {
    let Some(journal) = JournalFrames::read(&journal_of(database))? else { return Ok(None) };
    Ok(journal.damage(durable_frames(database, &journal)))
}

fn durable_frames(database: &Path, journal: &JournalFrames) -> Option<usize> {
    shared_memory::last_frame(&shared_memory_of(database), journal.salts)
}

/// Writes the journal of a closed database anew, and deletes its index, which SQLite makes again.
pub(crate) fn mend_journal(database: &Path) -> StoreResult<MendedJournal> {
    let error = |error| StoreError::io("cannot replace the journal", error);
    let (journal, new) = (journal_of(database), database.with_extension("mended-wal"));
    let Some(frames) = JournalFrames::read(&journal)? else { return Ok(MendedJournal::default()) };
    let mended = mend::mend(&journal, &new, durable_frames(database, &frames))?;
    remove_if_there(&shared_memory_of(database)).map_err(error)?;
    std::fs::rename(&new, &journal).map_err(error)?;
    journal.parent().map_or(Ok(()), sync_folder).map_err(error)?;
    Ok(mended)
}
