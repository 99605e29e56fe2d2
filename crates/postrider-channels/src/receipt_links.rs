//! Where a receiver reports what became of a delivery. Makes no tokens: whoever takes the receipts does.

use postrider_core::{DeliveryId, Timestamp};

/// Makes the addresses for receipts.
pub trait ReceiptLinks: Send + Sync {
    /// The URL for the receipts of one delivery. It works for some time after `expires_at`, the end of the delivery.
    fn link(&self, delivery: DeliveryId, expires_at: Timestamp) -> String;

    /// The length of every URL.
    fn link_len(&self) -> usize;

    /// The URL for calls of a provider about one delivery, which went through this account.
    fn callback(&self, account: &str, delivery: DeliveryId, expires_at: Timestamp) -> String;
}
