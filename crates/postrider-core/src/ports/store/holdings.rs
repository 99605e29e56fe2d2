//! What a tenant has in a store that stays until somebody deletes it or its time is over.

use crate::model::message::TenantId;

/// How much a tenant keeps, of each kind that has a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holdings {
    pub addresses: u64,
    pub dead_letters: u64,
    /// Bytes of the bodies and addresses of dead letters. A body that several deliveries share counts once.
    pub dead_letter_bytes: u64,
    /// Lanes with pending deliveries. A lane without any is forgotten.
    pub lanes: u64,
    /// Addresses with strikes.
    pub strikes: u64,
    /// Marks of addresses that are gone.
    pub gone_marks: u64,
    /// Entries about people and their addresses.
    pub entries: u64,
}

/// The holdings of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantHoldings {
    pub tenant: TenantId,
    pub holdings: Holdings,
}
