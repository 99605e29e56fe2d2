//! The sandbox seen from outside, over real sockets.

mod checks;
mod client;
mod counting;
mod faults;
mod providers;
mod questions;

use postrider_sandbox::{Sandbox, SandboxConfig, SubscriptionInfo, SubscriptionWish, start};

async fn sandbox() -> Sandbox {
    start(SandboxConfig::default()).await.expect("a sandbox")
}

fn one(sandbox: &Sandbox, wish: SubscriptionWish) -> SubscriptionInfo {
    sandbox.subscribe(&wish).expect("a subscription").remove(0)
}

async fn over_h2(sandbox: &Sandbox) -> client::Connection {
    client::tls(&sandbox.ca_pem, sandbox.https, "h2").await
}
