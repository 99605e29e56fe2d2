//! A sandbox, and a server with accounts that send to it.

use postrider_sandbox::{ReceiverRequest, Sandbox, SandboxConfig};
use postrider_testkit::server::{ServerFixture, TestFolder, eventually};
use serde_json::{Value, json};

pub(crate) struct ProvidersFixture {
    pub(crate) sandbox: Sandbox,
    pub(crate) server: ServerFixture,
    _folder: TestFolder,
}

impl ProvidersFixture {
    /// `accounts` writes credentials to the folder and returns a part of the configuration.
    pub(crate) async fn new(accounts: impl FnOnce(&Sandbox, &TestFolder) -> String) -> Self {
        let folder = TestFolder::new();
        let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
        let ca = folder.write("ca.pem", &sandbox.ca_pem);
        let config = format!(
            "[network]\nallow_private_targets = true\nextra_ca_file = \"{ca}\"\n{}",
            accounts(&sandbox, &folder)
        );
        Self { server: ServerFixture::with(&config).await, sandbox, _folder: folder }
    }

    /// Accounts for a mail server, text messages and chats.
    pub(crate) async fn by_smtp() -> Self {
        let relay = "host = \"localhost\"\nport = SMTP\nuser = \"shop\"\nSECRET";
        Self::new(|sandbox, folder| message_accounts(sandbox, folder, relay)).await
    }

    /// Sends one message and waits for its end.
    pub(crate) async fn send(&self, address: Value, content: Value) -> Value {
        let message = json!({"to": {"address": address}, "content": content, "ttl_s": 600,
            "collapse_key": "ord-91"});
        let reply = self.server.post(message.to_string()).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let id = reply.body["deliveries"][0]["id"].as_str().unwrap().to_owned();
        let is_over = |delivery: &Value| {
            !["queued", "sending", "retrying"].contains(&delivery["state"].as_str().unwrap_or(""))
        };
        eventually(&self.server.admin(), &format!("/v1/deliveries/{id}"), is_over).await
    }

    /// A GET to the sandbox itself.
    pub(crate) async fn ask_sandbox(&self, path: &str) -> Value {
        let client = postrider::client::Client::new(self.sandbox.http_origin(), None).unwrap();
        client.get(path).await.unwrap()
    }

    /// The last request to this receiver.
    pub(crate) async fn last(&self, kind: &str, name: &str) -> Value {
        self.ask_sandbox(&format!("/sandbox/last/{kind}/{name}")).await
    }

    /// Sets up a receiver with these answers; the last one repeats.
    pub(crate) fn script(&self, kind: &str, name: &str, script: &[&str]) {
        let script = script.iter().map(|word| word.parse().unwrap()).collect();
        let request = ReceiverRequest { script, ..ReceiverRequest::default() };
        self.sandbox.set_up(kind, name, &request).unwrap();
    }
}

/// Accounts for mail, text messages and chats. In `mail`, `SECRET`, `SMTP`, `SMTPS` and `HTTPS` are replaced.
pub(crate) fn message_accounts(sandbox: &Sandbox, folder: &TestFolder, mail: &str) -> String {
    let secret = folder.write("secret", "sandbox-secret");
    let (https, host) = (sandbox.https_origin(), sandbox.https);
    let mail = mail
        .replace("SECRET", &format!("credential = \"file:{secret}\""))
        .replace("SMTPS", &sandbox.smtps.port().to_string())
        .replace("SMTP", &sandbox.smtp.port().to_string())
        .replace("HTTPS", https);
    format!(
        "[chat.hosts]\n\"{host}/slack\" = \"slack\"\n\"{host}/discord\" = \"discord\"\n\
         \"{host}/teams\" = \"teams\"\n\
         [accounts.mail]\nchannel = \"email\"\ntenant = \"*\"\nfrom = \"news@shop.example\"\n{mail}\n\
         [accounts.phone]\nchannel = \"sms\"\ntenant = \"*\"\naccount_sid = \"AC1\"\nfrom = \"+15550100\"\n\
         endpoint = \"{https}\"\ncredential = \"file:{secret}\"\n"
    )
}

/// Accounts for FCM and APNs.
pub(crate) fn device_accounts(sandbox: &Sandbox, folder: &TestFolder) -> String {
    let (key, https) = (sandbox.apns_key(), sandbox.https_origin());
    let text = |field: &str| key[field].as_str().unwrap();
    format!(
        "[accounts.firebase]\nchannel = \"fcm\"\ntenant = \"*\"\nendpoint = \"{https}\"\ncredential = \"file:{}\"\n\
         [accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\nteam_id = \"{}\"\nkey_id = \"{}\"\n\
         endpoint = \"{https}\"\nsandbox_endpoint = \"https://localhost:{}\"\ncredential = \"file:{}\"\n",
        folder.write("firebase.json", &sandbox.fcm_service_account().to_string()),
        text("team_id"),
        text("key_id"),
        sandbox.https.port(),
        folder.write("apple.p8", text("key")),
    )
}
