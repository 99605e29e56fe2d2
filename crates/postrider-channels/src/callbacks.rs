//! What a provider says later about a delivery, by a call to us: its channel checks that the provider made the call,
//! and reads it. Records nothing.

use async_trait::async_trait;
use http::HeaderMap;
use postrider_core::ReceiptKind;

/// The call of a provider.
#[derive(Debug, Clone, Copy)]
pub struct CallbackCall<'a> {
    /// The whole URL, as the provider was given it.
    pub url: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
}

/// What is not sent to an address any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackSuppression {
    /// Nothing arrives there.
    Undeliverable,
    /// Its owner complained, or answered STOP.
    Complaint,
}

/// What a call says about its delivery. Nothing, if it tells of a step in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallbackNews {
    pub receipt: Option<ReceiptKind>,
    pub suppression: Option<CallbackSuppression>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackRefusal {
    /// No account of this name takes calls.
    NoAccount,
    /// The secret of the account cannot be read.
    NoSecret(String),
    /// Another one made it.
    Forged,
    Malformed,
}

#[async_trait]
pub trait ProviderCallbacks: Send + Sync {
    async fn read(
        &self,
        account: &str,
        call: CallbackCall<'_>,
    ) -> Result<CallbackNews, CallbackRefusal>;
}
