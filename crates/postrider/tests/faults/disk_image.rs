//! What a power cut leaves on a disk. Replays the log of `disk_log.c`: what was synced is there, and of the rest any
//! part may be, also of a single write. Names of files are synced with their folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use postrider_testkit::random::SimRng;

const SECTOR: usize = 512;

/// One call of the server, and where its record ends in the log.
pub(crate) struct DiskCall {
    pub(crate) end: u64,
    change: DiskChange,
}

#[derive(Debug, Clone)]
enum DiskChange {
    Make(String),
    Delete(String),
    Rename(String, String),
    Content(String, ContentChange),
    Sync(String),
    SyncFolder,
    SharedMemory(Vec<u8>),
}

#[derive(Debug, Clone)]
enum ContentChange {
    Write(usize, Vec<u8>),
    Cut(usize),
}

/// The most bytes that were written to a file and not yet synced.
pub(crate) fn most_unsynced(calls: &[DiskCall], file: &str) -> usize {
    let (mut unsynced, mut most) = (0, 0);
    for call in calls {
        match &call.change {
            DiskChange::Content(name, ContentChange::Write(_, data)) if name == file => {
                unsynced += data.len();
                most = most.max(unsynced);
            }
            DiskChange::Sync(name) if name == file => unsynced = 0,
            _ => {}
        }
    }
    most
}

pub(crate) fn read_log(path: &Path) -> Result<Vec<DiskCall>> {
    let bytes = std::fs::read(path)?;
    let (mut calls, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let mut take = |length: usize| -> Result<&[u8]> {
            let part = bytes.get(at..at + length).context("the log ends within a record")?;
            at += length;
            Ok(part)
        };
        let (kind, named) = (take(1)?[0], take(1)?[0].into());
        let name = String::from_utf8(take(named)?.to_vec())?;
        let number = u64::from_le_bytes(take(8)?.try_into()?);
        let length = u32::from_le_bytes(take(4)?.try_into()?);
        let data = take(length.try_into()?)?.to_vec();
        let number = usize::try_from(number)?;
        let change = match kind {
            b'C' => DiskChange::Make(name),
            b'U' => DiskChange::Delete(name),
            b'R' => DiskChange::Rename(name, String::from_utf8(data)?),
            b'W' => DiskChange::Content(name, ContentChange::Write(number, data)),
            b'T' => DiskChange::Content(name, ContentChange::Cut(number)),
            b'S' if name.is_empty() => DiskChange::SyncFolder,
            b'S' => DiskChange::Sync(name),
            b'M' => DiskChange::SharedMemory(data),
            other => bail!("a record of kind {other}"),
        };
        calls.push(DiskCall { end: at as u64, change });
    }
    Ok(calls)
}

#[derive(Default)]
struct FileImage {
    synced: Vec<u8>,
    unsynced: Vec<ContentChange>,
}

/// The files of a folder, each by a number that it keeps under another name.
#[derive(Default)]
pub(crate) struct DiskImage {
    files: Vec<FileImage>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// Changes of names since the folder was synced, each as all names after it.
    unsynced_names: Vec<BTreeMap<String, usize>>,
    shared_memory: Vec<u8>,
    /// It says that the journal is synced, and does nothing.
    pub(crate) is_lying: bool,
    /// Kinds of what was unsynced at some cut, so that a test can tell that it tests something.
    pub(crate) lost: BTreeSet<&'static str>,
}

impl DiskImage {
    pub(crate) fn apply(&mut self, call: &DiskCall) -> Result<()> {
        match &call.change {
            DiskChange::Make(name) => {
                self.files.push(FileImage::default());
                self.names.insert(name.clone(), self.files.len() - 1);
                self.unsynced_names.push(self.names.clone());
            }
            DiskChange::Delete(name) => {
                self.names.remove(name);
                self.unsynced_names.push(self.names.clone());
            }
            DiskChange::Rename(from, to) => {
                let file = self.names.remove(from).context("an unknown file")?;
                self.names.insert(to.clone(), file);
                self.unsynced_names.push(self.names.clone());
            }
            DiskChange::Content(name, change) => self.file(name)?.unsynced.push(change.clone()),
            DiskChange::Sync(name) if self.is_lying && name.ends_with("-wal") => {}
            DiskChange::Sync(name) => {
                let file = self.file(name)?;
                for change in std::mem::take(&mut file.unsynced) {
                    change.apply(&mut file.synced, |_| true);
                }
            }
            DiskChange::SyncFolder => {
                self.synced_names.clone_from(&self.names);
                self.unsynced_names.clear();
            }
            DiskChange::SharedMemory(head) => self.shared_memory.clone_from(head),
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> Result<&mut FileImage> {
        let number = self.names.get(name).with_context(|| format!("{name} is not there"))?;
        self.files.get_mut(*number).context("a file")
    }

    /// Writes what is left after a power cut at this moment.
    pub(crate) fn cut(&mut self, random: &mut SimRng, to: &Path) -> Result<()> {
        let known = random.index(self.unsynced_names.len() + 1);
        let names = match known {
            0 => &self.synced_names,
            known => &self.unsynced_names[known - 1],
        };
        if !self.unsynced_names.is_empty() {
            self.lost.insert("names");
        }
        let share = [0.0, 0.5, 0.9, 1.0][random.index(4)];
        let torn = random.chance(0.5);
        for (name, file) in names {
            let file = &self.files[*file];
            let mut content = file.synced.clone();
            for change in &file.unsynced {
                self.lost.insert(change.kind(name));
                let whole = random.chance(share);
                let keeps = |_: usize| if torn { random.chance(share) } else { whole };
                change.apply(&mut content, keeps);
            }
            std::fs::write(to.join(name), content)?;
        }
        if random.chance(0.5) && !self.shared_memory.is_empty() {
            let mut pages = self.shared_memory.clone();
            pages.resize(32 << 10, 0);
            std::fs::write(to.join("postrider.db-shm"), pages)?;
        }
        Ok(())
    }
}

impl ContentChange {
    fn kind(&self, file: &str) -> &'static str {
        match self {
            Self::Cut(_) => "cuts",
            Self::Write(..) if file.ends_with("-wal") => "journal",
            Self::Write(..) if file.ends_with(".db") => "database",
            Self::Write(..) => "others",
        }
    }

    /// Changes the content, but of a write only the sectors that are kept, and a cut only if it is.
    fn apply(&self, content: &mut Vec<u8>, mut keeps: impl FnMut(usize) -> bool) {
        match self {
            Self::Cut(length) if keeps(0) => content.resize(*length, 0),
            Self::Cut(_) => {}
            Self::Write(offset, data) => {
                let mut at = 0;
                while at < data.len() {
                    let begin = offset + at;
                    let length = (SECTOR - begin % SECTOR).min(data.len() - at);
                    if keeps(begin / SECTOR) {
                        if content.len() < begin + length {
                            content.resize(begin + length, 0);
                        }
                        content[begin..begin + length].copy_from_slice(&data[at..at + length]);
                    }
                    at += length;
                }
            }
        }
    }
}
