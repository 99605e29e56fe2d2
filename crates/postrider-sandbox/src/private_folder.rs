//! A folder that only this user can enter, removed at the end.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Dropping it removes it with everything in it.
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// A new folder in the system's temporary one. Nobody can have made it before: its name is random, and a folder
    /// or link that exists is not taken.
    pub(crate) fn new(purpose: &str) -> Result<Self> {
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random).ok().context("the system gives no random numbers")?;
        let name = format!("postrider-{purpose}-{:016x}", u64::from_le_bytes(random));
        let folder = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A path as a value in a configuration file.
pub(crate) fn toml_path(path: &Path) -> toml::Value {
    toml::Value::String(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_for_this_user_alone_and_goes_with_its_content() {
        let folder = PrivateFolder::new("test").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("key"), "secret").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
