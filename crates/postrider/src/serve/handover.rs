//! A restart without a refused connection: the listening socket goes from the old process to the new one, and
//! connections wait in it until the new one has the store. The socket is the new process's standard input, which is
//! also how systemd gives one (`StandardInput=socket`).

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Pid, Signal, getppid, kill_process};

use super::service_manager::ServiceManager;

/// The number of the process whose place a new one takes.
const TAKES_OVER: &str = "POSTRIDER_TAKES_OVER";
/// How often a new process looks whether the old one has ended, and says that it waits.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The listening socket that this process was given as its standard input, if it was.
pub(crate) fn given_socket() -> anyhow::Result<Option<TcpListener>> {
    let stdin = std::io::stdin();
    if !socket_acceptconn(&stdin).unwrap_or(false) {
        return Ok(None);
    }
    let own = stdin.as_fd().try_clone_to_owned().context("cannot use the given socket")?;
    let listener = TcpListener::from(own);
    listener.local_addr().context("the given socket is not one of TCP")?;
    Ok(Some(listener))
}

/// Starts a new process of this program, with the same arguments, that takes this one's place: it checks its
/// configuration, asks this one to end, and waits for that.
pub(crate) fn start_successor(listener: TcpListener) -> anyhow::Result<Child> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| OsString::from("postrider"));
    let socket = Stdio::from(std::os::fd::OwnedFd::from(listener));
    let child = Command::new(program)
        .args(arguments)
        .env(TAKES_OVER, std::process::id().to_string())
        .stdin(socket)
        .spawn();
    child.context("cannot start a new process")
}

/// If this process takes the place of another one: asks that one to end, and waits until it has ended. What it had is
/// free then.
pub(crate) async fn await_predecessor(manager: &ServiceManager) -> anyhow::Result<()> {
    let Some(old) = std::env::var(TAKES_OVER).ok().and_then(|pid| pid.parse().ok()) else {
        return Ok(());
    };
    let old = Pid::from_raw(old);
    // Only the process that started this one is meant.
    let Some(old) = old.filter(|_| getppid() == old) else { return Ok(()) };
    // Before the old one ends, or the manager would think that the service has.
    manager.takes_over();
    kill_process(old, Signal::TERM).context("cannot ask the old process to end")?;
    tracing::info!("the old process ends; connections wait meanwhile");
    let mut waited = Duration::ZERO;
    while getppid() == Some(old) {
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
        if waited.as_millis().is_multiple_of(SAY_EVERY.as_millis()) {
            tracing::warn!(waited_s = waited.as_secs(), "the old process has not ended yet");
        }
    }
    Ok(())
}
