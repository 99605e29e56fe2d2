//! The addresses of this machine and the sockets on which this server listens. Decides nothing.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock};

/// Where this server listens. Sockets are added once their ports are known; all clones see them.
#[derive(Debug, Clone, Default)]
pub struct OwnListeners(Arc<RwLock<Vec<SocketAddr>>>);

impl OwnListeners {
    pub fn add(&self, listener: SocketAddr) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|own| {
            own.port() == address.port()
                && (own.ip() == address.ip()
                    || (own.ip().is_unspecified() && is_of_this_machine(address.ip())))
        })
    }
}

impl PartialEq for OwnListeners {
    fn eq(&self, other: &Self) -> bool {
        let all =
            |listeners: &Self| listeners.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        all(self) == all(other)
    }
}

impl Eq for OwnListeners {}

/// Whether the address belongs to this machine: only then can a socket be bound to it. Asked once per connection.
pub(super) fn is_of_this_machine(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}
