//! One HTTP server that is as many origins as a test wants: it listens on all of 127.0.0.0/8, and each address is an
//! origin of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postrider_channels::pool::{Request, TransportError};
use postrider_channels::{Pool, PoolConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) struct ManyOrigins {
    port: u16,
    state: Arc<OriginsState>,
}

struct OriginsState {
    /// Requests that may be answered.
    answers: Semaphore,
    /// Open connections by origin.
    open: Mutex<HashMap<IpAddr, usize>>,
    /// The origins of the requests in the order in which they were read.
    requests: Mutex<Vec<IpAddr>>,
}

/// The address of the nth origin.
pub(crate) fn origin(nth: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + nth))
}

impl ManyOrigins {
    pub(crate) async fn start() -> Self {
        let origins = Self::start_held().await;
        origins.answer(1 << 20);
        origins
    }

    /// Reads requests and answers none of them before [`ManyOrigins::answer`].
    pub(crate) async fn start_held() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, requests) = (Mutex::default(), Mutex::default());
        let state = Arc::new(OriginsState { answers: Semaphore::new(0), open, requests });
        tokio::spawn(accept(listener, state.clone()));
        Self { port, state }
    }

    /// Answers so many requests, in the order in which they come.
    pub(crate) fn answer(&self, count: usize) {
        self.state.answers.add_permits(count);
    }

    pub(crate) fn url(&self, nth: u32) -> String {
        format!("http://{}:{}/", origin(nth), self.port)
    }

    /// The URL of an origin that has a name.
    pub(crate) fn named_url(&self, name: &str) -> String {
        format!("http://{name}:{}/", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<IpAddr> {
        self.state.requests.lock().unwrap().clone()
    }

    pub(crate) fn open(&self, nth: u32) -> usize {
        self.state.open.lock().unwrap().get(&origin(nth)).copied().unwrap_or_default()
    }

    /// Connections of the whole process to this server, as the kernel counts them, those being opened included.
    pub(crate) fn client_sockets(&self) -> usize {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = format!(":{:04X}", self.port);
        let is_client = |line: &&str| {
            let mut fields = line.split_whitespace().skip(2);
            let (remote, state) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            remote.ends_with(&port) && matches!(state, "01" | "02")
        };
        table.lines().filter(is_client).count()
    }
}

async fn accept(listener: TcpListener, state: Arc<OriginsState>) {
    while let Ok((tcp, _)) = listener.accept().await {
        tokio::spawn(serve(tcp, state.clone()));
    }
}

async fn serve(tcp: TcpStream, state: Arc<OriginsState>) {
    let Ok(own) = tcp.local_addr() else { return };
    *state.open.lock().unwrap().entry(own.ip()).or_default() += 1;
    let service = service_fn(|_| async {
        state.requests.lock().unwrap().push(own.ip());
        state.answers.acquire().await.unwrap().forget();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
    });
    let server = hyper::server::conn::http1::Builder::new();
    let _ = server.serve_connection(TokioIo::new(tcp), service).await;
    *state.open.lock().unwrap().entry(own.ip()).or_default() -= 1;
}

pub(crate) fn pool(connections_total_max: usize) -> Pool {
    let config = PoolConfig {
        allow_private_targets: true,
        allow_plain_http: true,
        connections_total_max,
        ..PoolConfig::default()
    };
    Pool::new(config).unwrap()
}

pub(crate) async fn get(pool: &Pool, url: &str, within: Duration) -> Result<u16, TransportError> {
    let request = Request { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
    let response = pool.send(url, request, Instant::now() + within).await?;
    Ok(response.status.as_u16())
}

/// Waits for what other tasks bring about.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came about");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
