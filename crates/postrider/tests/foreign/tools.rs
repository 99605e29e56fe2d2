//! Programs of other people: a Python environment and a Node folder with the packages of the tests, postfix's
//! `smtp-sink`, and `swaks`. Made once per target folder, by the first test that needs them.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// Versions and hashes of all packages; also of those that others need.
const REQUIREMENTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider/tests/fixtures/requirements/foreign.txt");
/// The same for node, with a lock file.
const NODE_FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider/tests/fixtures/node");

/// Runs `make` if `folder` is not there yet; other tests wait meanwhile.
fn once(folder: &Path, make: impl FnOnce(&Path)) {
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !folder.join("ready").exists() {
        let _ = fs::remove_dir_all(folder);
        make(folder);
        fs::write(folder.join("ready"), "").unwrap();
    }
}

/// What a fresh machine lacks is fetched before the second try.
fn run_after(remedy: &[&str], mut command: Command) {
    if !command.output().is_ok_and(|output| output.status.success()) {
        let mut apt = Command::new("apt-get");
        let _tried = apt.args(remedy).output();
        run(&mut command);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed; the tests need what it installs:\n{said}"
    );
}

/// A Python that has the packages.
pub(crate) fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign-python-4");
    once(&folder, |folder| {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder);
        run_after(&["install", "-y", "--no-install-recommends", "python3-venv"], venv);
        let pip = folder.join("bin/pip");
        run(Command::new(pip)
            .args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"])
            .arg(REQUIREMENTS));
    });
    folder.join("bin/python")
}

/// A folder where node finds the packages.
fn node_modules() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign-node-3");
    once(&folder, |folder| {
        fs::create_dir_all(folder).unwrap();
        for file in ["package.json", "package-lock.json"] {
            fs::copy(Path::new(NODE_FILES).join(file), folder.join(file)).unwrap();
        }
        run(Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(folder));
    });
    folder
}

/// `smtp-sink` of Debian's postfix, taken out of its package without installing that.
pub(crate) fn smtp_sink() -> Command {
    let installed = Path::new("/usr/sbin/smtp-sink");
    if installed.exists() {
        return Command::new(installed);
    }
    let folder = unpacked("postfix");
    let mut command = Command::new(folder.join("usr/sbin/smtp-sink"));
    command.env("LD_LIBRARY_PATH", folder.join("usr/lib/postfix"));
    command
}

/// The Swiss army knife of SMTP; a script in Perl, which needs a library for TLS.
pub(crate) fn swaks() -> Command {
    let installed = Path::new("/usr/bin/swaks");
    let mut tls = Command::new("perl");
    tls.args(["-MNet::SSLeay", "-e", "1"]);
    run_after(&["install", "-y", "--no-install-recommends", "libnet-ssleay-perl"], tls);
    let mut command = Command::new("perl");
    match installed.exists() {
        true => command.arg(installed),
        false => command.arg(unpacked("swaks").join("usr/bin/swaks")),
    };
    command
}

/// What is in a Debian package, without installing it.
fn unpacked(package: &str) -> PathBuf {
    let name = format!("foreign-{package}-1");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    once(&folder, |folder| {
        fs::create_dir_all(folder).unwrap();
        let mut download = Command::new("apt-get");
        download.args(["download", package]).current_dir(folder);
        run_after(&["update"], download);
        let packages = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let package =
            packages.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
        run(Command::new("dpkg").arg("-x").arg(package.unwrap()).arg(folder));
    });
    folder
}

/// A Python script that ends with one line of JSON.
pub(crate) fn ask(script: &str, input: &Value) -> Value {
    told(Script::spawn(script, &[]), input)
}

/// The same in JavaScript.
pub(crate) fn ask_node(script: &str, input: &Value) -> Value {
    let mut command = Command::new("node");
    command.args(["-e", script]).current_dir(node_modules());
    told(Script::of(&mut command), input)
}

fn told(mut child: Script, input: &Value) -> Value {
    let mut stdin = child.child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    child.line()
}

/// A running program; ends with the test.
pub(crate) struct Script {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Script {
    pub(crate) fn spawn(script: &str, args: &[&str]) -> Self {
        let mut command = Command::new(python());
        command.args(["-u", "-c", script]).args(args);
        Self::of(&mut command)
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next line that it prints, as JSON.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
