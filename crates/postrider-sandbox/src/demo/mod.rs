//! `postrider demo`: the whole story in one command. A sandbox of fake providers that fail on
//! purpose, a server, traffic; then every promise is checked against what the sandbox counted.

mod accounts;
mod cases;
mod stage;
mod story;
mod verdict;

use std::time::{Duration, Instant};

use anyhow::Result;

use stage::Stage;
use story::Story;

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
}

/// How long the story may take; a message that has no end by then has none.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(args: DemoArgs, launcher: &dyn ServerLauncher) -> Result<bool> {
    let started = Instant::now();
    let stage = Stage::set(&args, launcher).await?;
    println!(
        "Postrider demo: fake providers that fail on purpose, one server, {} messages.",
        args.messages
    );
    println!(
        "The retry policy is shortened (300 ms to 3 s instead of 2 s to 2 min) so that hours fit into seconds."
    );
    println!("Watch it: {}\n", stage.dashboard());
    let held = play(&stage, &args, started).await;
    // Whatever happened, the folder with the demo's keys does not stay.
    stage.strike().await;
    held
}

async fn play(stage: &Stage, args: &DemoArgs, started: Instant) -> Result<bool> {
    let mut story = Story::new(stage, started + PATIENCE);
    tokio::select! {
        told = story.tell(args) => told?,
        stopped = stop_signal() => return stopped.map(|()| false),
    }
    let held = verdict::pronounce(&story).await?;
    println!("\nTold in {:.1} s.", started.elapsed().as_secs_f64());
    if !args.exit {
        println!(
            "The server keeps running and a few messages a second keep coming. Look at\n  {}\nand press Ctrl-C to end.",
            stage.dashboard()
        );
        tokio::select! {
            stopped = stop_signal() => stopped?,
            failed = story.go_on(args) => failed?,
        }
    }
    Ok(held)
}
