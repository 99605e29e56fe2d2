//! The command line as a script uses it: the real binary, its output and its exit codes.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const KEY: &str = "an-admin-key-for-tests-Zk3vQ8xLw0pYt5RuB7nHc2Ma-";

fn postrider(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(args).env_remove("POSTRIDER_SERVER").env("POSTRIDER_KEY", KEY);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_names_every_command_and_shows_examples() {
    let help = text(&postrider(&["--help"]));
    for name in [
        "serve",
        "demo",
        "dev",
        "sandbox",
        "send",
        "status",
        "explain",
        "messages",
        "deliveries",
        "dead",
        "addresses",
        "keys",
        "vapid",
        "lanes",
        "templates",
        "doctor",
        "fsck",
        "backup",
        "restore",
        "migrate-store",
        "bench",
        "openapi",
        "config",
        "completions",
        "version",
        "Examples:",
    ] {
        assert!(help.contains(name), "{name} is missing in\n{help}");
    }
    for command in [
        "serve",
        "send",
        "dead",
        "keys",
        "addresses",
        "explain",
        "templates",
        "doctor",
        "fsck",
        "backup",
        "restore",
        "migrate-store",
    ] {
        let help = text(&postrider(&[command, "--help"]));
        assert!(help.contains("Example"), "{command} shows no example");
    }
}

#[test]
fn exit_codes_tell_wrong_usage_from_an_unreachable_server() {
    assert_eq!(postrider(&["version"]).status.code(), Some(0));
    assert_eq!(postrider(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(postrider(&["dead", "replay"]).status.code(), Some(2));
    assert_eq!(postrider(&["explain", "../keys"]).status.code(), Some(2));
    assert_eq!(postrider(&["status", "--server", "ftp://x"]).status.code(), Some(2));
    let unreachable = postrider(&["status", "--server", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(errors(&unreachable).contains("cannot reach http://127.0.0.1:1"));
}

#[test]
fn a_broken_configuration_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("postrider.toml");
    std::fs::write(&file, "[server]\nlisten = \"127.0.0.1:0\"\nlissten = 1\n").unwrap();
    let check = postrider(&["config", "check", "--config", file.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(2));
    assert!(errors(&check).contains("lissten"), "{}", errors(&check));
    std::fs::write(&file, text(&postrider(&["config", "reference"]))).unwrap();
    let check = postrider(&["config", "check", "--config", file.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(0), "{}", errors(&check));
}

#[test]
fn tools_get_what_they_parse() {
    let openapi: serde_json::Value = serde_json::from_str(&text(&postrider(&["openapi"]))).unwrap();
    assert_eq!(openapi["openapi"], "3.1.0");
    assert!(text(&postrider(&["completions", "bash"])).contains("postrider"));
}

fn tomorrow() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string()
}

/// Waits for tomorrow, so that nothing is sent.
fn message() -> String {
    serde_json::json!({
        "to": {"address": {"channel": "webhook", "url": "https://example.com/h"}},
        "content": {"title": "x"},
        "send_at": tomorrow(),
    })
    .to_string()
}

struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().unwrap_or_default().to_owned();
        Self { child, url }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut all = args.to_vec();
        all.extend(["--server", &self.url]);
        postrider(&all)
    }

    /// SIGTERM, and the exit code that it leads to.
    fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_message_survives_a_restart_and_the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Served::start(&data);
    let sent = server.run(&["send", "--json-message", &message(), "--json"]);
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    let sent: serde_json::Value = serde_json::from_str(&text(&sent)).unwrap();
    let delivery = sent["deliveries"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(server.run(&["explain", "dlv_00000000000000000000000000"]).status.code(), Some(1));
    assert_eq!(server.stop(), Some(0), "SIGTERM ends it in order");

    let server = Served::start(&data);
    let why = server.run(&["explain", &delivery]);
    assert_eq!(why.status.code(), Some(0), "{}", errors(&why));
    assert!(text(&why).contains("It is scheduled for later."), "{}", text(&why));
    let status = text(&server.run(&["status"]));
    assert!(status.contains("1 pending"), "{status}");
}

#[test]
fn a_file_of_messages_is_sent_as_a_batch_and_refused_lines_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::start(&dir.path().join("data"));
    let good = message();
    let file = dir.path().join("messages.ndjson");
    std::fs::write(&file, format!("{good}\n{{\"to\":1}}\n{good}\n")).unwrap();
    let sent = server.run(&["send", "--file", file.to_str().unwrap()]);
    assert_eq!(sent.status.code(), Some(1));
    assert!(text(&sent).contains("2 accepted, 1 refused"), "{}", text(&sent));
    assert!(errors(&sent).contains("message 2:"), "{}", errors(&sent));
}

#[test]
fn a_template_is_set_previewed_sent_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::start(&dir.path().join("data"));
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let toml = "default_locale = \"en\"\n[locales.en]\ntitle = \"Order {{ order.number }}\"\n\
                [locales.de]\ntitle = \"Bestellung {{ order.number }}\"\n";
    let file = write("shipped.toml", toml);
    let set = server.run(&["templates", "set", "shipped", "--file", &file]);
    assert_eq!(set.status.code(), Some(0), "{}", errors(&set));
    let listed = text(&server.run(&["templates", "list"]));
    let row: Vec<&str> =
        listed.lines().nth(1).unwrap().split("  ").filter(|c| !c.is_empty()).collect();
    let row: Vec<_> = row.into_iter().map(str::trim).collect();
    assert_eq!(row, ["shipped", "tenant", "api", "en, de", "true", "order.number"]);
    let shown = text(&server.run(&["templates", "show", "shipped", "--json"]));
    let back = write("back.json", &shown);
    let set = server.run(&["templates", "set", "copy", "--file", &back]);
    assert_eq!(set.status.code(), Some(0), "what is shown can be set again: {}", errors(&set));

    let seen = server.run(&["templates", "preview", "shipped", "--channel", "sms"]);
    assert_eq!(seen.status.code(), Some(1), "it is not ready");
    assert!(text(&seen).contains("missing: order.number (in title)"), "{}", text(&seen));
    let vars = write("vars.json", "{\"order\": {\"number\": 91}}");
    let args = [
        "templates",
        "preview",
        "shipped",
        "--locale",
        "de-AT",
        "--vars",
        &vars,
        "--channel",
        "sms",
    ];
    let seen = text(&server.run(&args));
    assert!(seen.starts_with("locale de\n"), "{seen}");
    assert!(seen.contains("text: Bestellung 91") && seen.contains("segments: 1"), "{seen}");
    let seen = server.run(&["templates", "preview", "--file", &file, "--var", "order.number=7"]);
    assert_eq!(seen.status.code(), Some(0), "{}", errors(&seen));

    let to = ["send", "--webhook", "https://example.com/h", "--send-at", &tomorrow(), "--json"]
        .map(str::to_owned);
    let send = |more: &[&str]| {
        let all: Vec<&str> = to.iter().map(String::as_str).chain(more.iter().copied()).collect();
        server.run(&all)
    };
    let sent = send(&["--template", "shipped", "--var", "order.number=91"]);
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    let sent: serde_json::Value = serde_json::from_str(&text(&sent)).unwrap();
    let content = text(&server.run(&["messages", "content", sent["id"].as_str().unwrap()]));
    assert!(content.contains("Order 91"), "{content}");
    let refused = send(&["--template", "shipped"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("template.variables.order.number"), "{}", errors(&refused));
    assert_eq!(send(&["--var", "a=b"]).status.code(), Some(2), "which template?");
    assert_eq!(server.run(&["templates", "delete", "shipped"]).status.code(), Some(0));
    assert_eq!(server.run(&["templates", "show", "shipped"]).status.code(), Some(1));
}

/// In a pseudo terminal that `script` makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_draws_in_a_terminal_and_leaves_it_as_it_was() {
    let server = postrider_testkit::server::ServerFixture::start().await;
    let command = format!(
        "{} top --server {} --key {}",
        env!("CARGO_BIN_EXE_postrider"),
        server.running.url(),
        postrider_testkit::ADMIN_KEY
    );
    let run = move || {
        use std::io::Write as _;
        let mut child = std::process::Command::new("script")
            .args([
                "-qec",
                &format!("stty cols 100 rows 30; {command}; echo status=$?"),
                "/dev/null",
            ])
            .env("TERM", "xterm")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut keys = child.stdin.take().unwrap();
        for key in [b"j".as_slice(), b" ", b"q"] {
            std::thread::sleep(std::time::Duration::from_millis(700));
            keys.write_all(key).unwrap();
            keys.flush().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = tokio::task::spawn_blocking(run).await.unwrap();
    for part in [
        "\u{1b}[?1049h",
        "Postrider top",
        "sent per second",
        "per second",
        "held",
        "\u{1b}[?1049l",
        "status=0",
    ] {
        assert!(shown.contains(part), "lacks {part:?}: {shown}");
    }
}

#[test]
fn a_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .arg("man")
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("postrider.1").contains("postrider"));
    assert!(page("postrider-events-create.1").contains("url"));
}
