//! Tells systemd (or another manager with its protocol) what the server does: ready, reloading, stopping, alive. Does
//! nothing without `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::api::SharedState;

#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The manager ends a server that it does not hear of for so long.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment says.
    pub(crate) fn of_process() -> Self {
        let name = std::env::var("NOTIFY_SOCKET").ok();
        let own = std::process::id().to_string();
        let is_own = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == own);
        let micros = std::env::var("WATCHDOG_USEC").ok().filter(|_| is_own);
        let micros = micros.and_then(|text| text.parse().ok()).filter(|micros| *micros > 0);
        Self::new(name.as_deref(), micros.map(Duration::from_micros))
    }

    fn new(name: Option<&str>, watchdog: Option<Duration>) -> Self {
        let address = |name: &str| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let open = |name: &str| Some((UnixDatagram::unbound().ok()?, address(name).ok()?));
        let socket = name.filter(|name| !name.is_empty()).and_then(open);
        if let Some((socket, _)) = &socket {
            // A manager that does not read must not stop the server.
            let _ = socket.set_nonblocking(true);
        }
        Self { socket, watchdog }
    }

    fn tell(&self, text: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::debug!(%error, "the service manager could not be told");
        }
    }

    /// The API answers and the dispatcher works. The manager learns which process serves.
    pub(crate) fn ready(&self, url: &str) {
        let pid = std::process::id();
        self.tell(&format!("READY=1\nMAINPID={pid}\nSTATUS=listens on {url}"));
    }

    /// Another process of the service ends, and this one serves.
    pub(crate) fn takes_over(&self) {
        self.tell(&format!("MAINPID={}\nSTATUS=takes over", std::process::id()));
    }

    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=shutting down");
    }

    /// Says that the server is alive for as long as it is: its runtime runs, and its dispatcher works. For ever.
    pub(crate) async fn keep_alive(&self, app: SharedState) {
        let Some(watchdog) = self.watchdog else { return std::future::pending().await };
        let mut every = tokio::time::interval(watchdog / 3);
        loop {
            every.tick().await;
            if app.is_dispatching() {
                self.tell("WATCHDOG=1");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_the_words_of_the_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::new(path.to_str(), None);
        let hear = || {
            let mut bytes = [0; 256];
            let read = heard.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        manager.ready("http://x");
        assert!(hear().starts_with("READY=1\nMAINPID="));
        manager.reloading();
        assert!(hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        manager.stopping();
        assert!(hear().starts_with("STOPPING=1\n"));
        ServiceManager::new(None, None).ready("nobody hears it");
    }
}
