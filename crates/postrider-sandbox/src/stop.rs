//! Waits for the signal to stop.

/// Returns on SIGTERM or Ctrl-C.
pub(crate) async fn stop_signal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done?,
        _ = term.recv() => {}
    }
    Ok(())
}
