//! The `postrider` binary. See [`postrider::cli`].

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    postrider::cli::main().await
}
