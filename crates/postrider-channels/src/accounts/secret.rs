//! A reference to a secret, as it is written in the configuration. It never is the secret itself.

use std::fmt;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A command has this long to print the secret.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const SECRET_MAX: u64 = 64 * 1024;

/// `env:NAME`, `file:PATH` or `command:PROGRAM ARGUMENTS…` (run without a shell; prints the secret).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretRef {
    source: SecretSource,
    rest: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretSource {
    Env,
    File,
    Command,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found {0}, allowed is env:NAME, file:PATH or command:PROGRAM ARGUMENTS; never the secret itself"
)]
pub struct SecretRefError(&'static str);

impl SecretRef {
    pub fn parse(text: &str) -> Result<Self, SecretRefError> {
        let (source, rest) = match text.split_once(':') {
            Some(("env", rest)) => (SecretSource::Env, rest),
            Some(("file", rest)) => (SecretSource::File, rest),
            Some(("command", rest)) => (SecretSource::Command, rest),
            _ => return Err(SecretRefError("something else")),
        };
        if rest.trim().is_empty() {
            return Err(SecretRefError("nothing after the colon"));
        }
        Ok(Self { source, rest: rest.trim().into() })
    }

    /// Whether it is a file that every user of this machine can read or change.
    pub fn is_open_to_all(&self) -> bool {
        #[cfg(unix)]
        if self.source == SecretSource::File {
            use std::os::unix::fs::MetadataExt as _;
            return std::fs::metadata(&*self.rest).is_ok_and(|file| file.mode() & 0o006 != 0);
        }
        false
    }

    /// The file's name, if it is a file.
    pub(crate) fn file_name(&self) -> Option<&str> {
        let path =
            (self.source == SecretSource::File).then_some(std::path::Path::new(&*self.rest))?;
        path.file_name()?.to_str()
    }

    /// Reads the secret. Blocks. The error names the reference and never the secret.
    pub fn read(&self) -> Result<String, String> {
        let text = match self.source {
            SecretSource::Env => std::env::var(&*self.rest).map_err(|_| "is not set".to_owned()),
            SecretSource::File => {
                std::fs::read_to_string(&*self.rest).map_err(|e| e.kind().to_string())
            }
            SecretSource::Command => run(&self.rest),
        };
        let text = text.map_err(|why| format!("{self}: {why}"))?;
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("{self}: is empty"));
        }
        Ok(text.to_owned())
    }
}

fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot be run: {}", e.kind()))?;
    let printed = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let read = printed.map(|out| out.take(SECRET_MAX).read_to_string(&mut text));
        matches!(read, Some(Ok(_))).then_some(text)
    });
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("gave no answer within 10 s".to_owned());
            }
        }
    };
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    reader.join().ok().flatten().ok_or_else(|| "printed no text".to_owned())
}

impl TryFrom<String> for SecretRef {
    type Error = SecretRefError;

    fn try_from(text: String) -> Result<Self, SecretRefError> {
        Self::parse(&text)
    }
}

impl From<SecretRef> for String {
    fn from(reference: SecretRef) -> Self {
        reference.to_string()
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            SecretSource::Env => "env",
            SecretSource::File => "file",
            SecretSource::Command => "command",
        };
        write!(f, "{source}:{}", self.rest)
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_a_variable_a_file_or_a_command() {
        let read = |text: &str| SecretRef::parse(text).unwrap().read();
        assert!(read("env:PATH").is_ok());
        assert_eq!(
            read("env:POSTRIDER_SURELY_NOT_SET").unwrap_err(),
            "env:POSTRIDER_SURELY_NOT_SET: is not set"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        assert_eq!(read(&format!("file:{}", file.path().display())).unwrap(), "s3cret");
        assert_eq!(read("command:echo two words").unwrap(), "two words");
        assert!(read("command:false").unwrap_err().contains("ended with"));
        assert!(read("command:/surely/not/there").unwrap_err().contains("cannot be run"));
    }

    #[test]
    fn what_is_no_reference_is_refused_without_repeating_it() {
        for wrong in ["hunter2", "vault:x", "env:", "file: "] {
            let error = SecretRef::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains("file:PATH"), "{error}");
        }
    }
}
