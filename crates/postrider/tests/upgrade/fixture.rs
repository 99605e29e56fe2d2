//! A copy of a data folder that version 0.1 filled, with its manifest.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) const ADMIN: &str = "fixture-admin-key-0123456789-Zk3vQ8xLw0pYt5RuB7nHc2M";

pub(crate) struct OldFolder {
    pub(crate) manifest: Value,
    copy: tempfile::TempDir,
}

impl OldFolder {
    /// `stopped` or `killed`: how its last process ended.
    pub(crate) fn copy(name: &str) -> Self {
        let manifest = std::fs::read(fixture(&format!("{name}.json"))).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(fixture(&format!("{name}.tar.gz"))).arg("-C").arg(copy.path());
        assert!(unpack.status().unwrap().success());
        Self { manifest: serde_json::from_slice(&manifest).unwrap(), copy }
    }

    pub(crate) fn path(&self) -> &Path {
        self.copy.path()
    }

    /// A text of the manifest, by its JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.manifest.pointer(pointer).and_then(Value::as_str).unwrap()
    }

    /// A list of ids in the manifest; empty if it is absent.
    pub(crate) fn ids(&self, pointer: &str) -> Vec<String> {
        let listed = self.manifest.pointer(pointer).and_then(Value::as_array);
        let id = |id: &Value| id.as_str().unwrap().to_owned();
        listed.into_iter().flatten().map(id).collect()
    }
}

/// The configuration of the server that filled the folder, without hosts and accounts.
pub(crate) fn configuration() -> String {
    std::fs::read_to_string(fixture("server.toml")).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data-0.1").join(name)
}
