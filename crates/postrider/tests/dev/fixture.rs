//! A running `postrider dev`, with what it printed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::browser::Browser;
use postrider_testkit::http::call;
use serde_json::{Value, json};

pub(crate) struct DevFixture {
    pub(crate) child: Child,
    /// The line that it printed.
    pub(crate) printed: Value,
}

impl DevFixture {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With more arguments. The ports are free ones.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["dev", "--json", "--listen", "127.0.0.1:0", "--listen-inbox", "127.0.0.1:0"])
            .args(arguments)
            .env("POSTRIDER_ADMIN_KEY", ADMIN_KEY)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let printed = serde_json::from_str(&line).unwrap_or_else(|_| panic!("printed {line:?}"));
        Self { child, printed }
    }

    pub(crate) fn browser(&self) -> Browser {
        let mut browser = Browser::start().unwrap();
        browser.open(self.text("inbox")).unwrap();
        browser
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.printed[name].as_str().unwrap()
    }

    fn at(&self, name: &str) -> SocketAddr {
        self.text(name).strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(crate) fn samples(&self) -> &[Value] {
        self.printed["samples"].as_array().unwrap()
    }

    /// The message to try on a channel.
    pub(crate) fn sample(&self, channel: &str) -> Value {
        let found = self.samples().iter().find(|sample| sample["channel"] == channel);
        found.unwrap()["message"].clone()
    }

    /// Hands a message in, and returns the id of its delivery.
    pub(crate) fn send(&self, message: &Value) -> String {
        let answer = call(self.at("server"), "POST", "/v1/messages", &message.to_string()).unwrap();
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json().unwrap()["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// A delivery as soon as it has ended.
    pub(crate) fn ended(&self, id: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let path = format!("/v1/deliveries/{id}");
            let delivery = call(self.at("server"), "GET", &path, "").unwrap().json().unwrap();
            let state = delivery["state"].as_str().unwrap_or_default();
            if !["queued", "sending", "retrying"].contains(&state) {
                return delivery;
            }
            assert!(Instant::now() < deadline, "not within a minute: {delivery:#}");
            std::thread::yield_now();
        }
    }

    /// A call to the sandbox itself: status and body.
    pub(crate) fn sandbox(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = call(self.at("http"), method, path, &body).unwrap();
        (answer.status, answer.body)
    }

    /// The messages of the inbox that match a query.
    pub(crate) fn inbox(&self, query: &str) -> Value {
        let (status, body) = self.sandbox("GET", &format!("/sandbox/inbox?{query}"), &json!(null));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Ends it as Ctrl-C does, and waits for its end.
    pub(crate) fn interrupt(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().success()
    }
}

impl Drop for DevFixture {
    fn drop(&mut self) {
        // In order, so that its folder goes.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.interrupt();
        }
    }
}
