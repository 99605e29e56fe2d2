//! The server and the sandbox of `postrider dev`, over real sockets, with their folder.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::DevArgs;
use super::samples::DevSample;
use crate::http_client::ApiClient;
use crate::launcher::{LaunchedServer, ServerLauncher};
use crate::private_folder::{PrivateFolder, toml_path};
use crate::{FaultProfile, Sandbox, SandboxConfig};

/// Networks of this machine alone.
const LOOPBACK: &str = r#"["127.0.0.0/8", "::1/128"]"#;

pub(super) struct DevServices {
    sandbox: Sandbox,
    server: Box<dyn LaunchedServer>,
    key: String,
    samples: Vec<DevSample>,
    folder: DevFolder,
}

/// Where the data are.
enum DevFolder {
    Temporary(PrivateFolder),
    Kept(PathBuf),
}

impl DevServices {
    pub(super) async fn start(args: &DevArgs, launcher: &dyn ServerLauncher) -> Result<Self> {
        if let Some(at) = args.listen.filter(|at| !at.ip().is_loopback() && !args.allow_remote) {
            anyhow::bail!("other machines reach {at}; listen on 127.0.0.1, or add --allow-remote");
        }
        let folder = DevFolder::open(args.data.as_deref())?;
        let key = match &args.key {
            Some(key) => key.clone(),
            None => read_or_make_key(&folder.path().join("dev-key"))?,
        };
        let credentials = folder.path().join("sandbox");
        make_folder(&credentials)?;
        let ca = credentials.join("ca.pem");
        let sandbox = start_sandbox(args, &ca).await?;
        let accounts = sandbox.server_config(&credentials)?;
        let config = |listen| server_config(args, listen, folder.path(), &key, &accounts);
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let server =
            match (launcher.launch(&config(args.listen.unwrap_or(usual))).await, args.listen) {
                (Ok(server), _) => server,
                (Err(error), Some(_)) => return Err(error),
                // Probably another process uses the port: take any free one. Another cause fails again.
                (Err(_), None) => launcher.launch(&config(SocketAddr::new(usual.ip(), 0))).await?,
            };
        let api = ApiClient { address: server.address(), key: key.clone(), tenant: "default" };
        let secrets = api.get("/v1/webhook-secrets").await?;
        let secret = secrets["secrets"][0]["secret"].as_str().context("a webhook secret")?;
        sandbox.set_webhook_secret(secret)?;
        let samples = DevSample::all(&sandbox)?;
        let services = Self { sandbox, server, key, samples, folder };
        services.sandbox.show_samples(services.samples_as_json());
        Ok(services)
    }

    fn server_url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    fn samples_as_json(&self) -> Value {
        let server = self.server_url();
        let sample = |sample: &DevSample| {
            json!({
                "channel": sample.channel,
                "message": sample.message,
                "curl": sample.curl(&server),
            })
        };
        self.samples.iter().map(sample).collect()
    }

    pub(super) async fn as_json(&self) -> Result<Value> {
        Ok(json!({
            "ready": true,
            "server": self.server_url(),
            "key": self.key,
            "inbox": self.sandbox.inbox_url(),
            "status_page": self.server.sign_in_link().await?,
            "https": self.sandbox.https_origin(),
            "http": self.sandbox.http_origin(),
            "smtp": self.sandbox.smtp.to_string(),
            "smtps": self.sandbox.smtps.to_string(),
            "folder": self.folder.path(),
            "samples": self.samples_as_json(),
            "pid": std::process::id(),
        }))
    }

    pub(super) async fn as_text(&self) -> Result<String> {
        let (server, inbox) = (self.server_url(), self.sandbox.inbox_url());
        let kept = match &self.folder {
            DevFolder::Temporary(_) => "removed at the end".to_owned(),
            DevFolder::Kept(path) => format!("kept in {}", path.display()),
        };
        let mut text = format!(
            "Postrider dev: a server and fake providers of every channel. Nothing is delivered to real ones.\n\n\
             Inbox        {inbox}\n\
             Server       {server}\n\
             Status page  {}\n\
             Key          {}\n\
             Data         {kept}\n\n\
             In another terminal:\n\n\
             export POSTRIDER_SERVER={server} POSTRIDER_KEY={}\n",
            self.server.sign_in_link().await?,
            self.key,
            self.key,
        );
        for sample in &self.samples {
            let _ = write!(text, "\n# {}\n{}\n", sample.channel, sample.curl(&server));
        }
        text.push_str("\nCtrl-C ends it.");
        Ok(text)
    }

    /// Ends both and removes the folder, unless it is to be kept.
    pub(super) async fn shutdown(self) {
        self.server.shutdown().await;
        self.sandbox.shutdown().await;
    }
}

impl DevFolder {
    fn open(kept: Option<&Path>) -> Result<Self> {
        let Some(path) = kept else { return Ok(Self::Temporary(PrivateFolder::new("dev")?)) };
        make_folder(path)?;
        let path = path.canonicalize();
        Ok(Self::Kept(path.context("the folder of --data cannot be found")?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

/// With the usual ports, or with free ones if another process uses them.
async fn start_sandbox(args: &DevArgs, ca: &Path) -> Result<Sandbox> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let config = |https, http| -> Result<SandboxConfig> {
        Ok(SandboxConfig {
            listen: local(https),
            listen_http: args.listen_inbox.unwrap_or(local(http)),
            allow_remote: args.allow_remote,
            profile: FaultProfile::load(&args.faults)?,
            seed: args.seed,
            inbox_max: args.inbox_max,
            ca_out: Some(ca.to_owned()),
            ..SandboxConfig::default()
        })
    };
    match crate::start(config(9443, 9080)?).await {
        Ok(sandbox) => Ok(sandbox),
        Err(_) => crate::start(config(0, 0)?).await,
    }
}

fn server_config(
    args: &DevArgs,
    listen: SocketAddr,
    folder: &Path,
    key: &str,
    accounts: &str,
) -> String {
    // One secret for all receivers, so that the sandbox can check every signature.
    format!(
        "[store]\ndata = {data}\n[server]\nlisten = \"{listen}\"\nallow_plain_http = {remote}\n\
         [admin]\nkey = {key}\n[webhook]\nsecret_per_address = false\n\
         [network]\nallow_private_targets = {LOOPBACK}\nallow_plain_http = {LOOPBACK}\nextra_ca_file = {ca}\n\
         {accounts}",
        data = toml_path(&folder.join("data")),
        remote = args.allow_remote,
        key = toml::Value::String(key.to_owned()),
        ca = toml_path(&folder.join("sandbox").join("ca.pem")),
    )
}

fn make_folder(path: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// The key stays the same in a folder that is kept.
fn read_or_make_key(path: &Path) -> Result<String> {
    if path.exists() {
        let key = std::fs::read_to_string(path);
        let key = key.with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(!key.trim().is_empty(), "{} is empty; remove it for a new key", path.display());
        return Ok(key.trim().to_owned());
    }
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).ok().context("the system gives no random numbers")?;
    let key = BASE64_URL_SAFE_NO_PAD.encode(random);
    let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| writeln!(file, "{key}"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_kept_folder_keeps_its_key_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dev-key");
        let key = read_or_make_key(&path).unwrap();
        assert_eq!(read_or_make_key(&path).unwrap(), key);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "\n").unwrap();
        assert!(read_or_make_key(&path).unwrap_err().to_string().contains("is empty"));
    }
}
