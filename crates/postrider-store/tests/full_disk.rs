//! On a full disk the store refuses new work, and finishes accepted work. Uses a small file system where one
//! can be mounted, else the store's own limit of size.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{
    AddressLearning, Admission, Ledger, NewMessage, Retention, SettleResult, Settlement,
    StoreError, StoreResult,
};
use postrider_core::{Clock, DeliveryId, State, Timestamp};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, success};
use postrider_store::{ManualClock, StoreOptions};

const LEASE: Duration = Duration::from_secs(60);
const DISK: u64 = 24 << 20;
const RESERVE: u64 = 3 << 20;

/// A disk that fills up soon.
struct Disk {
    path: PathBuf,
    mounted: bool,
    _dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let size = format!("size={DISK}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("no file system can be mounted here: the store's limit of size stands in");
        }
        Self { path, mounted, _dir: dir }
    }

    /// For what the store's limit cannot stand in for.
    fn mounted() -> Option<Self> {
        let disk = Self::new();
        if !disk.mounted {
            eprintln!("NOT TESTED: this needs a file system that can be mounted");
        }
        Some(disk).filter(|disk| disk.mounted)
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What others keep on the disk.
    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Others take what is left of the disk, to the last byte.
    fn fill(&self) {
        if self.mounted {
            write_until_full(&self.ballast());
        }
    }

    /// Others take what is left but this.
    fn leave(&self, bytes: u64) {
        use std::io::Write as _;
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(self.ballast()).unwrap();
        let left = || rustix::fs::statvfs(&self.path).map(|disk| disk.f_bavail * disk.f_frsize);
        while left().unwrap() > bytes {
            file.write_all(&[7; 4096]).unwrap();
        }
    }

    /// Where the store's own limit stands in for the disk, and for the reserve.
    async fn limit(&self, store: &WorkingStore, bytes: u64) {
        if !self.mounted {
            store.limit_size(Some(bytes)).await.unwrap();
        }
    }

    /// Others give back what they took.
    async fn clear(&self, store: &WorkingStore) {
        if self.mounted {
            std::fs::remove_file(self.ballast()).unwrap();
        } else {
            store.limit_size(None).await.unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

fn write_until_full(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    while file.write(&[7; 4096]).is_ok_and(|written| written > 0) {}
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)))
}

fn open(disk: &Disk) -> WorkingStore {
    let options = StoreOptions { reserve_bytes: RESERVE, ..StoreOptions::default() };
    WorkingStore::open(&disk.data(), clock(), options).unwrap()
}

/// Ten deliveries with so much to say that the disk is soon full.
fn long() -> NewMessage {
    let mut new = batch("acme", &[1; 10]);
    new.content = format!(r#"{{"title":"{}"}}"#, "x".repeat(20_000)).into();
    new
}

/// Accepts until that is refused; answers what was promised.
async fn accept_until_full(disk: &Disk, store: &WorkingStore) -> (Vec<DeliveryId>, StoreError) {
    disk.limit(store, DISK - RESERVE).await;
    let mut promised = Vec::new();
    loop {
        match store.accept(vec![long()]).await {
            Ok(mut admissions) => match admissions.remove(0) {
                Admission::Accepted { deliveries, .. } => promised.extend(deliveries),
                other => panic!("{other:?}"),
            },
            Err(error) => {
                disk.limit(store, DISK).await;
                return (promised, error);
            }
        }
        assert!(promised.len() < 50_000, "the disk is never full");
    }
}

/// Delivers what is due; answers how much that was.
async fn deliver(store: &WorkingStore, at_most: usize) -> usize {
    try_deliver(store, at_most).await.unwrap()
}

async fn try_deliver(store: &WorkingStore, at_most: usize) -> StoreResult<usize> {
    let mut delivered = 0;
    while delivered < at_most
        && let Some(lane) = store.ready_lanes(1).await.unwrap().pop()
    {
        let leased = store.lease(lane.id, 50.min(at_most - delivered), LEASE).await.unwrap();
        let settlements = leased.iter().map(|l| Settlement {
            delivery: l.delivery,
            token: l.token,
            attempts: vec![success(1, clock().now())],
            decision: Decision::Done,
            learned: AddressLearning::default(),
        });
        let settled = store.settle(settlements.collect()).await?;
        assert!(settled.iter().all(|s| *s == SettleResult::Done), "{settled:?}");
        delivered += settled.len();
    }
    Ok(delivered)
}

async fn accept_when_there_is_room(store: &WorkingStore) {
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = store.accept(vec![long()]).await {
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(Instant::now() < end, "new work is still refused: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_new_work_and_still_settles() {
    let disk = Disk::new();
    let store = open(&disk);
    assert!(store.is_accepting());
    let (mut promised, refused) = accept_until_full(&disk, &store).await;
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(promised.len() > 100, "{}", promised.len());
    disk.fill();
    assert_eq!(deliver(&store, 50).await, 50, "the reserve is for this");
    if disk.mounted {
        assert!(!store.is_accepting(), "the reserve is in use");
        let refused = store.accept(vec![batch("acme", &[1])]).await.err();
        assert!(matches!(refused, Some(StoreError::Full { .. })), "{refused:?}");
    }
    promised.drain(..50);
    assert_eq!(deliver(&store, usize::MAX).await, promised.len());
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states[&State::Sent], 50 + promised.len() as u64);
}

#[tokio::test]
async fn accepts_are_taken_again_when_there_is_room_without_restart() {
    let disk = Disk::new();
    let store = open(&disk);
    store.accept(vec![long()]).await.unwrap();
    disk.fill();
    let (_, refused) = accept_until_full(&disk, &store).await;
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(deliver(&store, 10).await > 0);
    if disk.mounted {
        assert!(!store.is_accepting(), "the reserve is in use");
        let refused = store.accept(vec![long()]).await.unwrap_err().to_string();
        assert!(refused.contains("free space"), "{refused}");
    }
    disk.clear(&store).await;
    accept_when_there_is_room(&store).await;
    assert!(store.is_accepting());
    assert_eq!(disk.data().join("postrider.reserve").metadata().unwrap().len(), RESERVE);
    assert!(deliver(&store, usize::MAX).await >= 10);
}

#[tokio::test]
async fn little_room_and_a_full_disk_are_problems_until_there_is_room() {
    let Some(disk) = Disk::mounted() else { return };
    let store = open(&disk);
    let codes = || store.check_health().problems.iter().map(|p| p.code).collect::<Vec<_>>();
    assert_eq!(codes(), [""; 0]);
    disk.leave(RESERVE);
    assert_eq!(codes(), ["disk_low"]);
    assert!(store.is_accepting(), "it is said before it hurts");
    disk.fill();
    accept_until_full(&disk, &store).await;
    assert_eq!(codes(), ["disk_full", "disk_low"]);
    disk.clear(&store).await;
    accept_when_there_is_room(&store).await;
    let end = Instant::now() + Duration::from_secs(60);
    while !codes().is_empty() {
        assert!(Instant::now() < end, "still {:?}", codes());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn nothing_accepted_is_lost_over_a_full_disk() {
    let disk = Disk::new();
    let store = open(&disk);
    let (promised, _) = accept_until_full(&disk, &store).await;
    disk.fill();
    let sent = deliver(&store, 100).await;
    drop(store);
    let store = open(&disk);
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states[&State::Sent], sent as u64);
    assert_eq!(counts.states[&State::Queued], (promised.len() - sent) as u64);
    assert_eq!(deliver(&store, usize::MAX).await, promised.len() - sent);
    for id in promised {
        assert_eq!(store.delivery(None, id).await.unwrap().unwrap().state, State::Sent);
    }
}

/// Fills the disk with the store's own file, finishes all of it and deletes what is old. Meanwhile, others take a
/// part of what the reserve left, so that there is no room for it any more. Nothing if the journal became shorter at a
/// moment that left room for it.
async fn fill_and_prune(disk: &Disk) -> Option<WorkingStore> {
    let store = open(disk);
    let (promised, refused) = accept_until_full(disk, &store).await;
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    disk.fill();
    assert_eq!(deliver(&store, 50).await, 50);
    disk.leave(RESERVE / 16 * 13);
    // In less room than the reserve: enough or not, as the journal happens to be.
    match try_deliver(&store, usize::MAX).await {
        Ok(delivered) => assert_eq!(delivered, promised.len() - 50),
        Err(error) => {
            assert!(matches!(error, StoreError::Full { .. }), "{error}");
            return None;
        }
    }
    if store.is_accepting() {
        return None;
    }
    let mut pruned = 0;
    loop {
        match store.prune(&Retention::of(Duration::ZERO)).await.unwrap().deleted {
            0 => break,
            some => pruned += some,
        }
    }
    assert_eq!(pruned, promised.len() as u64);
    Some(store)
}

/// The same on a new disk that `prepare` was done to, again if it has to be. Nothing if no disk can be mounted here.
async fn fill_and_prune_new(prepare: impl Fn(&Disk)) -> Option<(Disk, WorkingStore)> {
    for _ in 0..5 {
        let disk = Disk::mounted()?;
        prepare(&disk);
        if let Some(store) = fill_and_prune(&disk).await {
            return Some((disk, store));
        }
    }
    panic!("there was room for the reserve, or none to settle, each time");
}

#[tokio::test]
async fn a_disk_that_was_filled_by_our_own_file_heals() {
    let Some((disk, store)) = fill_and_prune_new(|_| ()).await else { return };
    accept_when_there_is_room(&store).await;
    let size = |file: &str| disk.data().join(file).metadata().map_or(0, |file| file.len());
    let end = Instant::now() + Duration::from_secs(60);
    // There is room for the reserve only because the database became smaller.
    while size("postrider.reserve") < RESERVE {
        assert!(Instant::now() < end, "the file has still {} bytes", size("postrider.db"));
        store.accept(vec![batch("acme", &[1])]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn free_pages_of_an_older_file_count_as_room() {
    let older = |disk: &Disk| {
        std::fs::create_dir(disk.data()).unwrap();
        let conn = rusqlite::Connection::open(disk.data().join("postrider.db")).unwrap();
        conn.execute_batch("CREATE TABLE some (x); DROP TABLE some").unwrap();
    };
    for _ in 0..5 {
        let Some((disk, store)) = fill_and_prune_new(older).await else { return };
        accept_when_there_is_room(&store).await;
        let (promised, refused) = accept_until_full(&disk, &store).await;
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        assert!(promised.len() > 100, "{}", promised.len());
        match try_deliver(&store, usize::MAX).await {
            Ok(delivered) => return assert_eq!(delivered, promised.len() + 10),
            // The set-up left less room than the reserve, and the journal took the rest.
            Err(StoreError::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there was no room to finish, each time");
}
