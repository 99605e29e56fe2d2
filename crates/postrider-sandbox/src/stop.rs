//! How whoever runs this process asks it to end.

/// Returns on SIGTERM or Ctrl-C.
pub(crate) async fn told_to_stop() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done?,
        _ = term.recv() => {}
    }
    Ok(())
}
