//! Thousands of random calls, made from the OpenAPI description by schemathesis, to the real binary: with an admin key
//! and with a key of a tenant. No answer is a server error, and none has a status or a type that is not described.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::TestConnection;
use postrider_testkit::process::ProcessFixture;
use serde_json::Value;

use crate::shell;

/// Cases of each operation. There are more than fifty operations.
const CASES: u32 = 100;
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// A stream of events has no end, and schemathesis writes no NDJSON.
const STREAMS: [&str; 3] = ["/v1/events", "/v1/messages/batch", "/v1/recipients/import"];

pub(super) fn run(args: &[&str]) -> Result<()> {
    let cases = match args {
        [] => CASES,
        ["--cases", number] => number.parse().context("--cases takes a number")?,
        _ => anyhow::bail!("takes only --cases N, the cases of each operation"),
    };
    let schemathesis = install()?;
    shell::step(&shell::root(), &["cargo", "build", "-p", "postrider"])?;
    let binary = shell::root().join("target/debug/postrider");
    for keys in ["admin", "tenant"] {
        let server = ProcessFixture::started(&binary, "")?;
        let key = match keys {
            "admin" => ADMIN_KEY.to_owned(),
            _ => tenant_key(&server)?,
        };
        shell::heading(&format!("{cases} cases of each operation with the key of the {keys}"));
        let mut command = Command::new(&schemathesis);
        command
            .arg("run")
            .arg(format!("http://{}/openapi.json", server.server_at))
            .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
            .args(["--max-examples", &cases.to_string()])
            .args(STREAMS.iter().flat_map(|path| ["--exclude-path", path]))
            .args(["--seed", "1", "--continue-on-failure", "--warnings", "off"])
            .args(["--header", &format!("Authorization: Bearer {key}")]);
        shell::run(&mut command).with_context(|| format!("as {keys}"))?;
        ensure!(TestConnection::open(server.server_at)?.get_json("/v1/stats").is_ok());
    }
    eprintln!("\nProven: every answer is described, and none is a server error.");
    Ok(())
}

fn tenant_key(server: &ProcessFixture) -> Result<String> {
    let body = r#"{"name": "proof", "scope": "admin,content", "tenant": "acme"}"#;
    let made = TestConnection::open(server.server_at)?.call_ok("POST", "/v1/keys", None, body)?;
    let made: Value = serde_json::from_str(&made)?;
    Ok(made["key"].as_str().context("a key")?.to_owned())
}

/// Installs schemathesis into the target folder, with pinned hashes.
fn install() -> Result<PathBuf> {
    let folder = shell::root().join("target/schemathesis");
    let program = folder.join("bin/schemathesis");
    if !program.exists() {
        let path = folder.display().to_string();
        shell::step(&shell::root(), &["python3", "-m", "venv", &path])?;
        let pip = folder.join("bin/pip").display().to_string();
        let pinned = "xtask/python/schemathesis.txt";
        let install = [pip.as_str(), "install", "--quiet", "--require-hashes", "-r", pinned];
        shell::step(&shell::root(), &install)?;
    }
    Ok(program)
}
