//! Receipts: what the far end says about a delivery after its provider accepted it. Makes and checks the tokens, and
//! records what came with them. Judges no delivery: the core says which state a receipt leads to.

mod recorder;
mod tokens;

pub(crate) use recorder::{ReceiptAnswer, ReceiptRecorder};
pub(crate) use tokens::{PublicReceiptLinks, ReceiptTokenRefusal, ReceiptTokens};

/// The path under which tokens are taken.
pub(crate) const RECEIPT_PATH: &str = "/v1/receipts/";
/// The path under which providers call: `ACCOUNT/TOKEN`.
pub(crate) const CALLBACK_PATH: &str = "/v1/callbacks/";
