//! Programs of other people that tests need and the machine may not have. They are fetched once per target folder, by
//! the first test that needs them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `make` if `folder` is not there yet; other tests wait meanwhile.
pub fn once(folder: &Path, make: impl FnOnce(&Path)) {
    let parent = folder.parent().expect("a folder in another one");
    fs::create_dir_all(parent).expect("the folder for programs");
    let lock = File::create(folder.with_extension("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    if !folder.join("ready").exists() {
        let _ = fs::remove_dir_all(folder);
        make(folder);
        fs::write(folder.join("ready"), "").expect("a file");
    }
}

/// What a fresh machine lacks is fetched before the second try.
pub fn run_after(remedy: &[&str], mut command: Command) {
    if !command.output().is_ok_and(|output| output.status.success()) {
        let mut apt = Command::new("apt-get");
        let _tried = apt.args(remedy).output();
        run(&mut command);
    }
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed; the tests need what it installs:\n{said}"
    );
}

/// The programs of a Python environment with the packages of a file, which also has their hashes: `python`, and what
/// the packages bring.
pub fn python_environment(tmp: &Path, name: &str, requirements: &Path) -> PathBuf {
    let folder = tmp.join(name);
    once(&folder, |folder| {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder);
        run_after(&["install", "-y", "--no-install-recommends", "python3-venv"], venv);
        let pip = folder.join("bin/pip");
        run(Command::new(pip)
            .args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"])
            .arg(requirements));
    });
    folder.join("bin")
}
