//! A sandbox, and a configuration with one account of every kind that sends to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use base64::Engine as _;
use postrider_sandbox::{Sandbox, SandboxConfig, start};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const PASSWORD: &str = "correct-horse-battery";
const CONFIG: &str = "postrider.toml";

pub(crate) struct DoctorFixture {
    pub(crate) sandbox: Sandbox,
    home: TempDir,
    names: NameServer,
}

impl DoctorFixture {
    /// `clock_offset_s` is how far the providers' clock is ahead of ours.
    pub(crate) async fn new(clock_offset_s: i64) -> Self {
        let config = SandboxConfig { clock_offset_s, ..SandboxConfig::default() };
        let sandbox = start(config).await.unwrap();
        let (home, names) = (tempfile::tempdir().unwrap(), NameServer::start().await);
        let fixture = Self { sandbox, home, names };
        let apple = fixture.sandbox.apns_key();
        fixture.write("ca.pem", &fixture.sandbox.ca_pem);
        fixture.write("firebase.json", &fixture.sandbox.fcm_service_account().to_string());
        fixture.write("apple.p8", apple["key"].as_str().unwrap());
        fixture.write("password", PASSWORD);
        fixture.write("aws.secret", "sandbox-secret");
        fixture.write("grid.key", "SG.secret-of-sendgrid");
        fixture.write("twilio.secret", "secret-of-twilio");
        let dkim = aws_lc_rs::signature::Ed25519KeyPair::generate().unwrap();
        let der: Pkcs8V1Der<'_> = dkim.as_der().unwrap();
        let key = pem(der.as_ref());
        fixture.publish(
            &postrider_channels::email::DkimKey::from_pem(&key).unwrap().record().unwrap(),
        );
        fixture.write("dkim.pem", &key);
        fixture.write(CONFIG, &fixture.config());
        fixture
    }

    fn config(&self) -> String {
        let (home, https) = (self.home.path().display(), self.sandbox.https_origin());
        let smtp = self.sandbox.smtp.port();
        format!(
            r#"
[server]
listen = "127.0.0.1:0"
[network]
allow_private_targets = true
extra_ca_file = "{home}/ca.pem"
[accounts.firebase]
channel = "fcm"
tenant = "*"
credential = "file:{home}/firebase.json"
endpoint = "{https}"
[accounts.apple]
channel = "apns"
tenant = "*"
credential = "file:{home}/apple.p8"
team_id = "SANDBOXTEA"
key_id = "SANDBOXKEY"
topics = ["com.example.app"]
endpoint = "{https}"
sandbox_endpoint = "{https}"
[accounts.relay]
channel = "email"
tenant = "*"
from = "news@shop.example"
host = "127.0.0.1"
port = {smtp}
user = "shop"
credential = "file:{home}/password"
dkim = [{{ selector = "s1", key = "file:{home}/dkim.pem" }}]
[accounts.amazon]
channel = "email"
tenant = "*"
provider = "ses"
from = "news@shop.example"
region = "eu-central-1"
key_id = "AKIDSANDBOX"
credential = "file:{home}/aws.secret"
endpoint = "{https}"
[accounts.grid]
channel = "email"
tenant = "*"
provider = "sendgrid"
from = "news@shop.example"
credential = "file:{home}/grid.key"
endpoint = "{https}"
[accounts.texts]
channel = "sms"
tenant = "*"
from = "+15550100"
account_sid = "AC1"
credential = "file:{home}/twilio.secret"
endpoint = "{https}"
"#
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A file that only its owner reads.
    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(self.path(name), text).unwrap();
        let rights = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.path(name), rights).unwrap();
    }

    pub(crate) fn change(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(CONFIG)).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        self.write(CONFIG, &text.replace(from, to));
    }

    /// What the name server says to every question for a text.
    pub(crate) fn publish(&self, text: &str) {
        text.clone_into(&mut self.names.text.lock().unwrap());
    }

    /// The account `apple` has a certificate that ends in so many days.
    pub(crate) fn use_certificate(&self, days: i32) {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        let end = jiff::Timestamp::now().as_second() + i64::from(days) * 86_400;
        let (year, month, day) = postrider_core::model::time::civil_from_days(end / 86_400);
        let (month, day) = (u8::try_from(month).unwrap(), u8::try_from(day).unwrap());
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(i32::try_from(year).unwrap(), month, day);
        params.distinguished_name.push(rcgen::DnType::CommonName, "com.example.app");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.write("apple.p8", &format!("{}{}", certificate.pem(), key.serialize_pem()));
        let ids = "team_id = \"SANDBOXTEA\"\nkey_id = \"SANDBOXKEY\"\n";
        if std::fs::read_to_string(self.path(CONFIG)).unwrap().contains(ids) {
            self.change(ids, "");
        }
    }

    /// How many tokens the fake Google has given out.
    pub(crate) async fn granted(&self) -> u64 {
        let url = format!("{}/sandbox/fcm/tokens", self.sandbox.http_origin());
        let client = postrider::client::Client::new(self.sandbox.http_origin(), None).unwrap();
        let told = client.get("/sandbox/fcm/tokens").await;
        told.unwrap_or_else(|e| panic!("{url}: {e}"))["granted"].as_u64().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.arg("doctor").arg("--config").arg(self.path(CONFIG));
        command.arg("--data").arg(self.path("data"));
        command.args(["--time-from", self.sandbox.https_origin()]);
        command.arg("--resolver").arg(self.names.addr.to_string()).args(args);
        command.current_dir(self.home.path());
        command
    }

    /// Exit code and report; a report never holds a secret.
    pub(crate) async fn doctor(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).arg("--json").output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        for secret in [PASSWORD, "sandbox-secret", "SG.secret", "secret-of-twilio", "PRIVATE KEY"] {
            assert!(
                !text.contains(secret) && !errors.contains(secret),
                "{secret} in {text}{errors}"
            );
        }
        let report = serde_json::from_str(&text).unwrap_or(Value::String(errors));
        (output.status.code().unwrap(), report)
    }
}

/// A name server with one text for every name.
struct NameServer {
    addr: SocketAddr,
    text: Arc<Mutex<String>>,
}

impl NameServer {
    async fn start() -> Self {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (addr, text) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(String::new())));
        let said = text.clone();
        tokio::spawn(async move {
            let mut question = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut question).await {
                let text = said.lock().unwrap().clone();
                let _ = socket.send_to(&answer(&question[..len], &text), from).await;
            }
        });
        Self { addr, text }
    }
}

/// The question without its OPT record, and one TXT record in pieces of 100 bytes.
fn answer(question: &[u8], text: &str) -> Vec<u8> {
    let mut out = question[..question.len() - 11].to_vec();
    out[2..4].copy_from_slice(&[0x81, 0x80]);
    (out[7], out[11]) = (1, 0);
    let pieces = text.as_bytes().chunks(100);
    let data: Vec<u8> = pieces.flat_map(|piece| [&[piece.len() as u8], piece].concat()).collect();
    out.extend_from_slice(&[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
    out.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&data);
    out
}

fn pem(der: &[u8]) -> String {
    let body = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}
