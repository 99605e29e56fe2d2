//! The sandbox seen from outside, over real sockets.

mod checks;
mod client;
mod counting;
mod faults;
mod providers;
mod questions;

use postrider_sandbox::{Sandbox, SandboxConfig, SandboxSubscription, SubscriptionRequest, start};

async fn sandbox() -> Sandbox {
    start(SandboxConfig::default()).await.expect("a sandbox")
}

fn one(sandbox: &Sandbox, wish: SubscriptionRequest) -> SandboxSubscription {
    sandbox.subscribe(&wish).expect("a subscription").remove(0)
}

async fn over_h2(sandbox: &Sandbox) -> client::Connection {
    client::tls(&sandbox.ca_pem, sandbox.https, "h2").await
}
