//! What a backup says about itself: when it was taken, how much it has, and its checksum.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use aws_lc_rs::digest;
use postrider_core::Timestamp;
use postrider_core::ports::store::{StoreError, StoreResult};
use serde::{Deserialize, Serialize};

use crate::embedded::folder::{io_error, private_file, sync_folder};

pub(super) const FILE: &str = "backup.json";
pub(super) const FORMAT: u32 = 1;
/// Bytes that are read or written at once.
const PIECE: usize = 1 << 20;

/// The file `backup.json` of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    pub format: u32,
    /// Everything that was acknowledged before this time is in the backup. Milliseconds since 1970.
    pub taken_at: Timestamp,
    /// The version of Postrider that took it.
    pub version: String,
    /// The layout of the tables.
    pub layout: u32,
    pub messages: u64,
    /// Deliveries that were not final.
    pub pending: u64,
    /// The size of the database.
    pub bytes: u64,
    /// The SHA-256 of the database, in hexadecimal.
    pub sha256: String,
}

impl BackupManifest {
    /// `None` if the folder has none.
    pub(super) fn read(folder: &Path) -> StoreResult<Option<Self>> {
        let file = folder.join(FILE);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| io_error("read", &file, e))?,
        };
        let manifest: Self = serde_json::from_str(&text).map_err(|error| StoreError::Corrupt {
            what: format!("{} is not readable: {error}", file.display()),
            cause: None,
        })?;
        if manifest.format > FORMAT {
            return Err(StoreError::NewerLayout { found: manifest.format, known: FORMAT });
        }
        Ok(Some(manifest))
    }

    pub(super) fn write(&self, folder: &Path) -> StoreResult<()> {
        let file = folder.join(FILE);
        let write = || {
            let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            let mut out = private_file(&file)?;
            out.set_len(0)?;
            writeln!(out, "{text}")?;
            out.sync_all()?;
            sync_folder(folder)
        };
        write().map_err(|e| io_error("write", &file, e))
    }
}

pub(super) fn digest_of_file(path: &Path) -> StoreResult<String> {
    copy_with_digest(path, &mut io::sink(), &mut |_| ()).map_err(|e| io_error("read", path, e))
}

/// Copies a file and returns its SHA-256.
pub(super) fn copy_with_digest(
    from: &Path,
    to: &mut dyn Write,
    copied: &mut dyn FnMut(u64),
) -> io::Result<String> {
    let (mut file, mut context) = (File::open(from)?, digest::Context::new(&digest::SHA256));
    let (mut piece, mut bytes) = (vec![0; PIECE], 0);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        context.update(&piece[..read]);
        to.write_all(&piece[..read])?;
        bytes += read as u64;
        copied(bytes);
    }
    let hex = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex)
}
