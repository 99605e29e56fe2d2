//! Fake providers that check what the real ones check, and fail on request; and the demo and the benchmark,
//! which run against them.
//!
//! Every fake answers over real sockets. Requests are counted by correlation id, so that a test can say how many
//! messages were lost or came twice. The sandbox keeps no message and delivers nothing; it models only what a
//! sender sees of a provider.

mod answer;
mod args;
mod bench;
mod body;
mod control;
mod correlation;
mod counts;
mod demo;
mod fakes;
mod fault;
mod http_client;
mod launcher;
mod limit;
mod listener;
mod profile;
mod received;
mod receiver;
mod sample;
mod service;
mod stop;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, RwLock};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub use args::{SandboxArgs, run as run_sandbox};
pub use bench::{BenchArgs, run as run_bench};
pub use control::ReceiverRequest;
pub use demo::{DemoArgs, run as run_demo};
pub use fakes::FakeKind;
pub use fakes::apns::certificate::{CertificateEnvironment, CertificateRequest};
pub use fakes::email::smtp::FakeSmtpStage;
pub use fakes::web_push::services::FakePushService;
pub use fakes::web_push::subscription::{
    SandboxSubscription, SandboxSubscriptionKeys, SubscriptionRequest,
};
pub use fault::Fault;
pub use launcher::{LaunchedServer, ServerLauncher};
pub use profile::FaultProfile;
pub use sample::{SampleReceiver, ShownId};

use fakes::FAKES;
use fakes::email::smtp;
use limit::SandboxLimits;
use listener::accept_loop;
use received::ReceivedRequests;
use receiver::ReceiverRegistry;
use service::SandboxState;

/// How a sandbox is set up. The default is faultless, on free ports of this machine only.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// TLS, HTTP/2 and HTTP/1.1.
    pub listen: SocketAddr,
    /// Plain HTTP/1.1, and HTTP/2 with prior knowledge.
    pub listen_http: SocketAddr,
    /// SMTP with STARTTLS.
    pub listen_smtp: SocketAddr,
    /// SMTP with TLS from the first byte.
    pub listen_smtps: SocketAddr,
    /// The host in the endpoints that are handed out; the listening address if not given.
    pub host: Option<String>,
    pub profile: FaultProfile,
    pub seed: u64,
    /// Where the certificate of the authority is written, for clients to trust.
    pub ca_out: Option<PathBuf>,
    /// `whsec_…`, for every webhook receiver without a secret of its own.
    pub webhook_secret: Option<String>,
    /// Beyond so many requests per second the answer is 429.
    pub rate_per_s: Option<u32>,
    /// Works off so many per second; what is more waits for its answer.
    pub pace_per_s: Option<u32>,
    /// Beyond so many requests at once the answer is 429.
    pub concurrency_max: Option<u32>,
    /// What the HTTP/2 settings allow on one connection.
    pub streams_max: u32,
    /// How far the providers' clock is ahead of this machine's; negative for behind.
    pub clock_offset_s: i64,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            listen: free,
            listen_http: free,
            listen_smtp: free,
            listen_smtps: free,
            host: None,
            profile: FaultProfile::default(),
            seed: 1,
            ca_out: None,
            webhook_secret: None,
            rate_per_s: None,
            pace_per_s: None,
            concurrency_max: None,
            streams_max: 200,
            clock_offset_s: 0,
        }
    }
}

/// A running sandbox. Dropping it closes its sockets.
pub struct Sandbox {
    pub https: SocketAddr,
    pub http: SocketAddr,
    pub smtp: SocketAddr,
    pub smtps: SocketAddr,
    /// The authority that signed the certificate of the TLS socket.
    pub ca_pem: String,
    state: Arc<SandboxState>,
    stop: watch::Sender<()>,
    accepting: [JoinHandle<()>; 4],
}

pub async fn start(config: SandboxConfig) -> anyhow::Result<Sandbox> {
    let https = bind(config.listen).await?;
    let http = bind(config.listen_http).await?;
    let (https_addr, http_addr) = (https.local_addr()?, http.local_addr()?);
    let (smtp, smtps) = (bind(config.listen_smtp).await?, bind(config.listen_smtps).await?);
    let (smtp_addr, smtps_addr) = (smtp.local_addr()?, smtps.local_addr()?);
    let host = config.host.clone().unwrap_or_else(|| host_of(https_addr.ip()));
    let identity = tls::make_identity(https_addr.ip(), &host)?;
    if let Some(path) = &config.ca_out {
        tokio::fs::write(path, &identity.ca_pem)
            .await
            .with_context(|| format!("writing the CA certificate to {}", path.display()))?;
    }
    let state = Arc::new(make_state(&config, &identity.ca_pem)?);
    let _ = state.origins.set((
        format!("https://{host}:{}", https_addr.port()),
        format!("http://{host}:{}", http_addr.port()),
    ));
    let (stop, stopped) = watch::channel(());
    let (tls, mail_tls) = (TlsAcceptor::from(identity.server), TlsAcceptor::from(identity.mail));
    let accept_http = |listener, tls: Option<TlsAcceptor>| {
        let state = Arc::clone(&state);
        tokio::spawn(accept_loop(listener, stopped.clone(), move |stream, stop| {
            listener::connection(Arc::clone(&state), stream, tls.clone(), stop)
        }))
    };
    let accept_mail = |listener, implicit| {
        let (state, tls) = (Arc::clone(&state), mail_tls.clone());
        tokio::spawn(accept_loop(listener, stopped.clone(), move |stream, stop| {
            smtp::connection(Arc::clone(&state), stream, tls.clone(), implicit, stop)
        }))
    };
    let accepting = [
        accept_http(https, Some(tls)),
        accept_http(http, None),
        accept_mail(smtp, false),
        accept_mail(smtps, true),
    ];
    let ca_pem = identity.ca_pem;
    let (https, http, smtp, smtps) = (https_addr, http_addr, smtp_addr, smtps_addr);
    Ok(Sandbox { https, http, smtp, smtps, ca_pem, state, stop, accepting })
}

impl Sandbox {
    /// `https://host:port`, as in the endpoints of its subscriptions.
    pub fn https_origin(&self) -> &str {
        self.state.https_origin()
    }

    pub fn http_origin(&self) -> &str {
        self.state.origins.get().map_or("", |(_, http)| http)
    }

    /// The same as `PUT /sandbox/<kind>/<name>`.
    pub fn set_up(
        &self,
        kind: FakeKind,
        name: &str,
        request: &ReceiverRequest,
    ) -> anyhow::Result<()> {
        control::set_up(&self.state, kind, name, request)
    }

    /// The same as `GET /sandbox/received`.
    pub fn received(&self) -> serde_json::Value {
        self.state.received.summary()
    }

    /// Takes no new connection and ends those that are open.
    pub async fn shutdown(self) {
        drop(self.stop);
        for task in self.accepting {
            let _ = task.await;
        }
    }
}

fn make_state(config: &SandboxConfig, ca_pem: &str) -> anyhow::Result<SandboxState> {
    let receivers = Arc::new(ReceiverRegistry::new(config.seed));
    let mut fakes = Vec::new();
    for entry in FAKES {
        fakes.extend((entry.make)(config)?.into_iter().map(|fake| (entry, fake)));
    }
    Ok(SandboxState {
        seed: config.seed,
        streams_max: config.streams_max,
        clock_offset_s: config.clock_offset_s,
        fakes,
        receivers: Arc::clone(&receivers),
        received: Arc::new(ReceivedRequests::new(receivers)),
        limits: SandboxLimits::new(config.rate_per_s, config.concurrency_max, config.pace_per_s),
        profile: RwLock::new(Arc::new(config.profile.clone())),
        ca_pem: ca_pem.to_owned(),
        origins: OnceLock::new(),
    })
}

async fn bind(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("listening on {addr}"))
}

fn host_of(ip: IpAddr) -> String {
    match ip {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
