//! The sandbox alone, for trying it out without the rest of the server.

use clap::Parser;
use postrider::sandbox::{SandboxArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SandboxArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(Cli::parse().args).await
}
