//! Tells what this machine ran out of from what a peer refused.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::TransportError;

/// The shortage of ours because of which a connect failed, if it was one.
pub(super) fn of_connect(error: &std::io::Error, to: &SocketAddr) -> Option<TransportError> {
    let local = |code, detail| Some(TransportError::local(code, detail));
    match Errno::from_io_error(error)? {
        Errno::MFILE => local("descriptors", "this process has no file descriptor left"),
        Errno::NFILE => local("descriptors", "this machine has no file descriptor left"),
        Errno::NOBUFS | Errno::NOMEM => {
            local("memory", "this machine has no memory left for connections")
        }
        // For IPv6 it means that this machine has none, which is no passing shortage.
        Errno::ADDRNOTAVAIL if to.is_ipv4() => {
            local("ports", "this machine has no port left for a connection to this address")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_ran_out_of_is_told_from_what_a_peer_refused() {
        let code = |errno: Errno, to: &str| {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            match of_connect(&error, &to.parse().unwrap()) {
                Some(TransportError::Local { code, .. }) => Some(code),
                Some(other) => panic!("{other:?}"),
                None => None,
            }
        };
        let v4 = "192.0.2.1:443";
        assert_eq!(code(Errno::MFILE, v4), Some("descriptors"));
        assert_eq!(code(Errno::NFILE, v4), Some("descriptors"));
        assert_eq!(code(Errno::NOBUFS, v4), Some("memory"));
        assert_eq!(code(Errno::ADDRNOTAVAIL, v4), Some("ports"));
        assert_eq!(code(Errno::ADDRNOTAVAIL, "[2001:db8::1]:443"), None);
        assert_eq!(code(Errno::CONNREFUSED, v4), None);
        assert_eq!(code(Errno::HOSTUNREACH, v4), None);
    }
}
