//! The journal is damaged after a crash: acknowledged work must not vanish without a word.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_core::Timestamp;
use postrider_core::ports::store::{Ledger, StoreError};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::message;
use postrider_store::{ManualClock, StoreOptions, fsck};

const COMMITS: u64 = 300;
const HEADER: u64 = 32;
const FRAME: u64 = 24 + 4096;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)))
}

fn open(dir: &Path) -> Result<WorkingStore, StoreError> {
    WorkingStore::open(dir, clock(), StoreOptions::default())
}

/// A copy of a folder as a crash leaves it: many commits, all in the journal.
async fn crashed() -> tempfile::TempDir {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path()).unwrap();
    // While somebody reads, the journal is neither moved nor cut, however slow the machine is.
    let reader = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
    for n in 0..COMMITS {
        store.accept(vec![message("acme", (n % 3) as u32)]).await.unwrap();
    }
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
    }
    copy
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("postrider.db-wal")
}

fn frames(dir: &Path) -> u64 {
    (journal(dir).metadata().unwrap().len() - HEADER) / FRAME
}

fn flip_bit(dir: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(journal(dir)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn without_shared_memory(dir: &Path) {
    std::fs::remove_file(dir.join("postrider.db-shm")).unwrap();
}

async fn messages(store: &WorkingStore) -> u64 {
    store.counts(None).await.unwrap().messages
}

fn assert_refused(dir: &Path) {
    let before = std::fs::read(journal(dir)).unwrap();
    let error = open(dir).err().expect("the start is refused");
    let text = error.to_string();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{text}");
    assert!(text.contains("journal") && text.contains("postrider fsck --repair"), "{text}");
    assert_eq!(std::fs::read(journal(dir)).unwrap(), before, "nothing is changed");
}

#[tokio::test]
async fn a_whole_journal_is_taken_over() {
    let dir = crashed().await;
    assert_eq!(messages(&open(dir.path()).unwrap()).await, COMMITS);
}

#[tokio::test]
async fn a_flipped_bit_amid_the_journal_refuses_the_start() {
    let dir = crashed().await;
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) / 3) + 2_000);
    assert_refused(dir.path());
    without_shared_memory(dir.path());
    assert_refused(dir.path());
}

#[tokio::test]
async fn a_flipped_bit_in_the_head_of_a_frame_refuses_the_start() {
    for byte in [1, 6, 10, 14, 18, 22] {
        let dir = crashed().await;
        flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) / 3) + byte);
        without_shared_memory(dir.path());
        assert_refused(dir.path());
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_head_of_the_journal_refuses_the_start() {
    for byte in [2, 9, 18, 25] {
        let dir = crashed().await;
        flip_bit(dir.path(), byte);
        without_shared_memory(dir.path());
        assert_refused(dir.path());
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_commit_refuses_the_start_after_a_killed_process() {
    let dir = crashed().await;
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) - 1) + 2_000);
    assert_refused(dir.path());
}

/// After a power cut, the end of the last transaction may be missing, in any order. It was not acknowledged.
#[tokio::test]
async fn a_torn_end_is_no_damage() {
    for keep in [1, 2_000, 4_119] {
        let dir = crashed().await;
        without_shared_memory(dir.path());
        let length = HEADER + FRAME * (frames(dir.path()) - 1) + keep;
        OpenOptions::new().write(true).open(journal(dir.path())).unwrap().set_len(length).unwrap();
        assert_eq!(messages(&open(dir.path()).unwrap()).await, COMMITS - 1);
    }
    let dir = crashed().await;
    without_shared_memory(dir.path());
    let file = OpenOptions::new().write(true).open(journal(dir.path())).unwrap();
    // A block of the last transaction, before its end, never reached the disk.
    let at = HEADER + FRAME * (frames(dir.path()) - 2);
    file.write_all_at(&[0; FRAME as usize], at).unwrap();
    assert_eq!(messages(&open(dir.path()).unwrap()).await, COMMITS - 1);
}

#[tokio::test]
async fn a_single_wrong_bit_is_corrected_by_a_repair() {
    let dir = crashed().await;
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) / 3) + 2_000);
    flip_bit(dir.path(), 9);
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) / 2) + 10);
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) / 2 + 9) + 18);
    flip_bit(dir.path(), HEADER + FRAME * (frames(dir.path()) - 1) + 300);
    assert_eq!(fsck::check(dir.path()).unwrap().len(), 1);
    let report = fsck::repair(dir.path()).unwrap().expect("there was damage");
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.journal.as_ref().map(|journal| journal.corrected), Some(2), "{report:?}");
    assert!(report.kept.join("postrider.db-wal").is_file());
    assert!(fsck::check(dir.path()).unwrap().is_empty());
    assert_eq!(messages(&open(dir.path()).unwrap()).await, COMMITS);
}

#[tokio::test]
async fn what_cannot_be_corrected_is_listed_and_the_rest_is_saved() {
    let dir = crashed().await;
    let file = OpenOptions::new().write(true).open(journal(dir.path())).unwrap();
    let broken = frames(dir.path()) / 3;
    for frame in broken..broken + 12 {
        file.write_all_at(&[0xEE; 4_000], HEADER + FRAME * frame + 60).unwrap();
    }
    assert_refused(dir.path());
    let report = fsck::repair(dir.path()).unwrap().expect("there was damage");
    assert_eq!(report.journal.as_ref().map(|journal| journal.lost), Some(12), "{report:?}");
    assert!(fsck::check(dir.path()).unwrap().is_empty());
    let store = open(dir.path()).unwrap();
    let saved = messages(&store).await;
    assert!(saved > COMMITS * 3 / 4, "{saved} of {COMMITS}: {report:?}");
    let lost: u64 = report.lost.iter().map(|(_, lost)| lost).sum();
    let counts = store.counts(None).await.unwrap();
    let pending: u64 = counts.states.values().sum();
    assert!(pending + lost + report.orphans.len() as u64 >= saved, "{counts:?} {report:?}");
    store.accept(vec![message("acme", 1)]).await.unwrap();
}
