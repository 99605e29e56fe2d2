//! `postrider dev` on the command line: where its data are, what it may reach, and what it refuses.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::fixture::DevFixture;

#[test]
fn the_data_go_at_the_end_unless_a_folder_is_named() {
    let mut dev = DevFixture::new();
    let folder = PathBuf::from(dev.text("folder"));
    assert!(folder.join("data").exists());
    dev.ended(&dev.send(&dev.sample("email")));
    assert!(dev.interrupt());
    assert!(!folder.exists(), "{}", folder.display());
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("dev").display().to_string();
    let mut dev = DevFixture::with(&["--data", &path]);
    let id = dev.send(&dev.sample("email"));
    dev.ended(&id);
    assert!(dev.interrupt());
    assert!(Path::new(&path).join("data").exists());
    let dev = DevFixture::with(&["--data", &path]);
    assert_eq!(dev.ended(&id)["state"], "sent", "it is still known");
    assert_eq!(dev.ended(&dev.send(&dev.sample("webpush")))["state"], "sent");
}

#[test]
fn without_tls_it_reaches_this_machine_only() {
    let dev = DevFixture::new();
    let webhook = |url: &str| json!({"to": {"address": {"channel": "webhook", "url": url}}, "content": {"body": "x"}});
    let local = format!("{}/hook/plain", dev.text("http"));
    let delivery = dev.ended(&dev.send(&webhook(&local)));
    assert_eq!(delivery["state"], "sent", "{delivery:#}");
    // The call is not even tried.
    for (url, code) in
        [("http://9.9.9.9/hook", "plain_http"), ("https://10.1.2.3/hook", "private_address")]
    {
        let delivery = dev.ended(&dev.send(&webhook(url)));
        assert!(delivery["log"].to_string().contains(code), "{url}: {delivery:#}");
    }
}

#[test]
fn a_curl_line_that_it_prints_works_as_it_is() {
    let dev = DevFixture::new();
    for sample in dev.samples() {
        let line = sample["curl"].as_str().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} -s")]).env("POSTRIDER_KEY", dev.text("key"));
        let output = shell.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{line}: {}", String::from_utf8_lossy(&output.stderr)));
        let id = answer["deliveries"][0]["id"].as_str().unwrap();
        assert_eq!(dev.ended(id)["state"], "sent", "{line}");
    }
    let inbox = dev.inbox("");
    let seen = inbox["messages"].as_array().unwrap().len();
    assert_eq!(seen, dev.samples().len(), "{inbox:#}");
}

#[test]
fn addresses_that_other_machines_reach_need_a_flag() {
    for option in ["--listen", "--listen-inbox"] {
        let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["dev", option, "0.0.0.0:0"])
            .env_remove("POSTRIDER_ADMIN_KEY")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{option}");
        assert!(said.contains("0.0.0.0:0") && said.contains("--allow-remote"), "{said}");
    }
}
