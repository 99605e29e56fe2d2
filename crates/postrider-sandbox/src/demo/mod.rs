//! `postrider demo`: a sandbox whose providers fail on purpose, a server and traffic. Then every promise is checked
//! against the counts of the sandbox.

mod cases;
mod promises;
mod services;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use services::DemoServices;
use steps::DemoRun;

use crate::launcher::ServerLauncher;
use crate::stop::stop_signal;

/// The whole story in one command: providers that fail, a server, traffic, dead letters, replay.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  postrider demo\n  postrider demo --exit\n  postrider demo --messages 5000 --faults storm --seed 7"
)]
pub struct DemoArgs {
    /// Stop when the story is told; exit code 0 only if every promise held
    #[arg(long)]
    exit: bool,
    /// How many messages the crowd sends beside the scripted ones
    #[arg(long, default_value_t = 400)]
    messages: usize,
    /// Faults that the crowd meets: none, mild, demo, storm, gone, slow, resets, chaos, or a file
    #[arg(long, default_value = "demo")]
    faults: String,
    /// The same seed meets the same faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the dashboard listens; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: std::net::SocketAddr,
    /// Show the logs, on standard error: error, warn, info, debug, trace, or a filter as of log.level
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

/// How long the demo may take until every delivery has ended.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(args: DemoArgs, launcher: &dyn ServerLauncher) -> Result<bool> {
    let started = Instant::now();
    let services = DemoServices::start(&args, launcher).await?;
    println!(
        "Postrider demo: fake providers that fail on purpose, one server, {} messages.",
        args.messages
    );
    println!(
        "The retry policy is shortened (300 ms to 3 s instead of 2 s to 2 min) so that hours fit into seconds."
    );
    println!("Watch it: {}\n", services.dashboard().await?);
    let held = play(&services, &args, started).await;
    // The folder with the demo's keys is removed in any case.
    services.shutdown().await;
    held
}

async fn play(services: &DemoServices, args: &DemoArgs, started: Instant) -> Result<bool> {
    let mut run = DemoRun::new(services, started + PATIENCE);
    tokio::select! {
        done = run.all_steps(args) => done?,
        stopped = stop_signal() => {
            stopped?;
            bail!("stopped before the end, so no promise was checked");
        }
    }
    let held = promises::check_all(&run).await?;
    println!("\nTold in {:.1} s.", started.elapsed().as_secs_f64());
    if !args.exit {
        println!(
            "The server keeps running and a few messages a second keep coming. Look at\n  {}\nand press Ctrl-C to end.",
            services.dashboard().await?
        );
        tokio::select! {
            stopped = stop_signal() => stopped?,
            failed = run.go_on(args) => failed?,
        }
    }
    Ok(held)
}
