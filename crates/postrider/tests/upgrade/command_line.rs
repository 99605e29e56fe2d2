//! The real binary serves an old folder, and its commands show what is in it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{ADMIN, OldFolder, configuration};

#[test]
fn the_commands_show_dead_letters_addresses_and_settings_of_a_folder_of_version_0_1() {
    for name in ["stopped", "killed"] {
        let server = Server::start(OldFolder::copy(name));
        let expected = |path: &str| server.old.manifest["answers"][path].clone();
        let dead = server.run(&["dead", "list", "--tenant", "*"]);
        assert_eq!(dead["items"], expected("/v1/dead-letters")["items"], "{name}");
        let addresses = server.run(&["addresses", "list"]);
        assert_eq!(names(&addresses), names(&expected("/v1/addresses")), "{name}");
        let class = server.run(&["classes", "show", "patient"]);
        for (field, value) in expected("/v1/classes/patient").as_object().unwrap() {
            assert_eq!(&class[field], value, "{name}: {field}");
        }
        for id in server.old.ids("/pending/paused") {
            let delivery = server.run(&["deliveries", "show", &id]);
            assert_eq!(delivery["message"], expected(&format!("/v1/deliveries/{id}"))["message"]);
        }
    }
}

/// Without strikes, which are forgotten some time after the folder was made.
fn names(addresses: &Value) -> Vec<[&Value; 4]> {
    let fields = ["id", "recipient", "channel", "hash"];
    let addresses = addresses["items"].as_array().unwrap().iter();
    addresses.map(|address| fields.map(|field| &address[field])).collect()
}

/// A server that only accepts and shows, so that the age of the folder does not matter.
struct Server {
    old: OldFolder,
    url: String,
    child: Child,
}

impl Server {
    fn start(old: OldFolder) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = old.path().join("server.toml");
        std::fs::write(&config, configuration()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["serve", "--role", "api", "--listen", &port.to_string()])
            .arg("--data")
            .arg(old.path())
            .arg("--config")
            .arg(config)
            .env("POSTRIDER_ADMIN_KEY", ADMIN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { old, url: format!("http://{port}"), child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !server.command(&["status"]).output().unwrap().status.success() {
            assert!(Instant::now() < deadline, "the server did not answer within a minute");
        }
        server
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(arguments).args(["--server", &self.url, "--key", ADMIN, "--json"]);
        command
    }

    fn run(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
