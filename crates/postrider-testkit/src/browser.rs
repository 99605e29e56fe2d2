//! A real Chromium, driven over a pipe by its own protocol (DevTools). It can reach this machine only.
//!
//! The page under test is loaded, asked and clicked; every request that it makes and every breach of its content
//! security policy is recorded.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

/// How long a page may take until it shows what is expected.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const ARGUMENTS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    // A page that was left is gone.
    "--disable-features=BackForwardCache",
    // No other name is found, so nothing can leave this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--window-size=1280,900",
];
/// Records breaches in every document of the page.
const RECORD_BREACHES: &str = "window.breaches = []; \
    document.addEventListener('securitypolicyviolation', (e) => \
    window.breaches.push(`${e.violatedDirective} ${e.blockedURI}`));";

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: String,
    requests: Vec<String>,
    /// Messages of the console that are errors.
    errors: Vec<String>,
    // Last, so that the process ends before its folder goes.
    _profile: tempfile::TempDir,
}

impl Browser {
    pub fn start() -> Result<Self> {
        let program = NAMES.into_iter().find(|name| is_installed(name)).context(
            "Chromium is not installed; on Debian: apt-get install chromium, or run cargo xtask test",
        )?;
        let profile = tempfile::tempdir()?;
        // The protocol uses the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", program])
            .args(ARGUMENTS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let input = child.stdin.take().context("its input")?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            while output.read_until(0, &mut text).is_ok_and(|len| len > 0) {
                let message = serde_json::from_slice(&text[..text.len() - 1]);
                text.clear();
                if message.is_ok_and(|message: Value| send.send(message).is_err()) {
                    return;
                }
            }
        });
        let (session, requests, errors) = (String::new(), Vec::new(), Vec::new());
        let (last_id, _profile) = (0, profile);
        let mut browser =
            Self { child, input, messages, last_id, session, requests, errors, _profile };
        browser.attach()?;
        Ok(browser)
    }

    fn attach(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", attach)?;
        self.session = attached["sessionId"].as_str().context("a session")?.to_owned();
        // Frames in processes of their own wait until their requests are recorded, too.
        let frames = json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true});
        self.call("Target.setAutoAttach", frames)?;
        for method in ["Page.enable", "Runtime.enable", "Network.enable", "Log.enable"] {
            self.call(method, json!({}))?;
        }
        let record = json!({"source": RECORD_BREACHES});
        self.call("Page.addScriptToEvaluateOnNewDocument", record)?;
        Ok(())
    }

    /// Loads a page, and waits until its first script has run.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let opened = self.call("Page.navigate", json!({"url": url}))?;
        ensure!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")?;
        Ok(())
    }

    /// The value of an expression in the page; of a promise, what it becomes.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let ask = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", ask)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {}", thrown["exception"]["description"]);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Asks the page again and again until an expression is true, and returns its value. A promise in the page would
    /// be of no use: if the page is left, the browser may keep it and its promises, and never answers.
    pub fn wait_for(&mut self, expression: &str) -> Result<Value> {
        let look =
            format!("(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()");
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Between two documents there is nothing to ask.
            let found = self.evaluate(&look).unwrap_or_default();
            if found != Value::Null && found != Value::Bool(false) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                let text = self.evaluate("document.body.innerText")?;
                bail!("not within a minute: {expression}\nthe page shows: {text}");
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Waits for an element and clicks it.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let selector = json!(selector);
        self.wait_for(&format!("document.querySelector({selector})"))?;
        self.evaluate(&format!("document.querySelector({selector}).click()"))?;
        Ok(())
    }

    /// Types into a field.
    pub fn fill(&mut self, selector: &str, text: &str) -> Result<()> {
        let (selector, text) = (json!(selector), json!(text));
        self.evaluate(&format!(
            "{{ const field = document.querySelector({selector}); field.value = {text}; \
             field.dispatchEvent(new Event('input', {{bubbles: true}})); }}"
        ))?;
        Ok(())
    }

    /// The width and height of the window, and whether the user prefers dark colours.
    pub fn emulate(&mut self, width: u32, height: u32, dark: bool) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        Ok(())
    }

    /// What the window shows, as a PNG.
    pub fn screenshot(&mut self, to: &Path) -> Result<()> {
        use base64::Engine as _;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let png = base64::prelude::BASE64_STANDARD.decode(shot["data"].as_str().unwrap_or(""))?;
        Ok(std::fs::write(to, png)?)
    }

    /// The addresses of all requests so far, also of frames. Those that the policy of a document stopped are not
    /// among them.
    pub fn requests(&mut self) -> Result<&[String]> {
        self.evaluate("1")?;
        Ok(&self.requests)
    }

    /// Breaches of the content security policy in the present document, and errors of its scripts.
    pub fn breaches(&mut self) -> Result<Vec<String>> {
        let found = self.evaluate("window.breaches")?;
        let found = found.as_array().cloned().unwrap_or_default();
        let found = found.iter().map(|breach| breach.as_str().unwrap_or_default().to_owned());
        Ok(found.chain(self.errors.iter().cloned()).collect())
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let session = self.session.clone();
        let id = self.send(method, &parameters, &session)?;
        let deadline = Instant::now() + PATIENCE * 2;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let message =
                message.with_context(|| format!("the browser does not answer {method}"))?;
            if message["id"] != id {
                self.note(&message)?;
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].clone());
        }
    }

    fn send(&mut self, method: &str, parameters: &Value, session: &str) -> Result<u64> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        self.input.write_all(format!("{message}\0").as_bytes())?;
        self.input.flush()?;
        Ok(self.last_id)
    }

    fn note(&mut self, event: &Value) -> Result<()> {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            "Target.attachedToTarget" => {
                let session = parameters["sessionId"].as_str().unwrap_or_default().to_owned();
                self.send("Network.enable", &json!({}), &session)?;
                self.send("Runtime.runIfWaitingForDebugger", &json!({}), &session)?;
            }
            "Runtime.exceptionThrown" => {
                self.errors.push(parameters["exceptionDetails"].to_string());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}
