//! Fake providers that check what the real ones check, and fail on request; and the demo, the benchmark and the
//! server for developers, which run against them.
//!
//! Every fake answers over real sockets. Requests are counted by correlation id, so that a test can count lost and
//! repeated messages. The sandbox delivers nothing.

mod answer;
mod args;
mod bench;
mod body;
mod control;
mod correlation;
mod counts;
mod cuttable_stream;
mod demo;
mod dev;
mod fakes;
mod fault;
mod http_client;
mod inbox;
mod launcher;
mod limit;
mod listener;
mod private_folder;
mod profile;
mod received;
mod receiver;
mod sample;
mod service;
mod stop;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, RwLock};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub use args::{SandboxArgs, SandboxConfig, run as run_sandbox};
pub use bench::{BenchArgs, run as run_bench};
pub use control::ReceiverRequest;
pub use demo::{DemoArgs, run as run_demo};
pub use dev::{DevArgs, run as run_dev};
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
pub use sample::{ProviderTtlField, SampleReceiver, ShownId};

use fakes::FAKES;
use fakes::email::smtp;
use inbox::Inbox;
use inbox::next_answers::NextAnswers;
use limit::SandboxLimits;
use listener::accept_loop;
use received::ReceivedRequests;
use receiver::ReceiverRegistry;
use service::SandboxState;
use tls::HttpsIdentity;

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
    config.refuse_remote()?;
    let (https_listener, https) = bind(config.listen).await?;
    let (http_listener, http) = bind(config.listen_http).await?;
    let listen_smtp = config.listen_smtp.unwrap_or_else(|| config.beside(9025));
    let listen_smtps = config.listen_smtps.unwrap_or_else(|| config.beside(9465));
    let (smtp_listener, smtp) = bind(listen_smtp).await?;
    let (smtps_listener, smtps) = bind(listen_smtps).await?;
    let host = config.host.clone().unwrap_or_else(|| host_of(https.ip()));
    let identity = tls::make_identity(https.ip(), &host)?;
    if let Some(path) = &config.ca_out {
        tokio::fs::write(path, &identity.ca_pem)
            .await
            .with_context(|| format!("writing the CA certificate to {}", path.display()))?;
    }
    let state = Arc::new(make_state(&config, &identity.ca_pem)?);
    let _ = state.origins.set((
        format!("https://{host}:{}", https.port()),
        format!("http://{host}:{}", http.port()),
    ));
    let (stop, stopped) = watch::channel(());
    let (tls, mail_tls) = (Arc::new(identity.server), TlsAcceptor::from(identity.mail));
    let accept_http = |listener, tls: Option<Arc<HttpsIdentity>>| {
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
        accept_http(https_listener, Some(tls)),
        accept_http(http_listener, None),
        accept_mail(smtp_listener, false),
        accept_mail(smtps_listener, true),
    ];
    let ca_pem = identity.ca_pem;
    Ok(Sandbox { https, http, smtp, smtps, ca_pem, state, stop, accepting })
}

impl Sandbox {
    /// `https://host:port`, as in the endpoints of its subscriptions.
    pub fn https_origin(&self) -> &str {
        self.state.https_origin()
    }

    pub fn http_origin(&self) -> &str {
        self.state.http_origin()
    }

    /// What the page of an empty inbox proposes to send.
    pub(crate) fn show_samples(&self, samples: serde_json::Value) {
        let _ = self.state.samples.set(samples);
    }

    /// The page that shows what was received.
    pub fn inbox_url(&self) -> String {
        format!("{}/inbox", self.http_origin())
    }

    /// The same as `PUT /sandbox/<kind>/<name>`.
    pub fn set_up(&self, kind: &str, name: &str, request: &ReceiverRequest) -> anyhow::Result<()> {
        control::set_up(&self.state, FakeKind::named(kind)?, name, request)
    }

    /// The same as `GET /sandbox/received`.
    pub fn received(&self) -> serde_json::Value {
        self.state.received.summary()
    }

    /// Stops accepting connections and ends the open ones.
    pub async fn shutdown(self) {
        self.state.inbox.close();
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
        inbox: Inbox::new(config.inbox_max),
        next_answers: NextAnswers::default(),
        samples: OnceLock::new(),
        limits: SandboxLimits::new(config.rate_per_s, config.concurrency_max, config.pace_per_s),
        profile: RwLock::new(Arc::new(config.profile.clone())),
        ca_pem: ca_pem.to_owned(),
        origins: OnceLock::new(),
    })
}

async fn bind(addr: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(addr).await;
    let listener = listener.with_context(|| format!("listening on {addr}"))?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

fn host_of(ip: IpAddr) -> String {
    match ip {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
