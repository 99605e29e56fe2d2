//! Whom a cause of trouble concerns in a drawn world, and who counts as sick because of it. Shared by the simulator
//! and the proof on the real binary.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::random::draw;

/// From this share of sick addresses on, all that the tenant sends to the origin counts as sick.
const SICK_SHARE_MAX: f64 = 0.4;
/// From this share of sick tenants on, the whole origin counts as sick.
const SICK_TENANTS_MAX: f64 = 0.6;

/// Whom a message concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageEnds {
    pub tenant: u32,
    pub origin: u32,
    pub address: u32,
}

#[derive(Debug, Clone, Copy)]
pub enum SickLevel {
    /// A share of the addresses of an origin, by their hash.
    Addresses {
        origin: u32,
        share: f64,
        salt: u64,
    },
    TenantAtOrigin {
        tenant: u32,
        origin: u32,
    },
    Origin(u32),
    /// A share of all origins, by their hash.
    Origins {
        share: f64,
        salt: u64,
    },
    /// All that a tenant sends.
    Tenant(u32),
    /// Our own process, where it needs something new for a share of all origins, by their hash.
    OwnProcess {
        share: f64,
        salt: u64,
    },
}

impl SickLevel {
    pub fn covers(&self, ends: MessageEnds) -> bool {
        match *self {
            Self::Addresses { origin, share, salt } => {
                let key = (u64::from(ends.tenant) << 32) | u64::from(ends.address);
                ends.origin == origin && draw(salt, "sick address", key).chance(share)
            }
            Self::TenantAtOrigin { tenant, origin } => {
                ends.tenant == tenant && ends.origin == origin
            }
            Self::Origin(origin) => ends.origin == origin,
            Self::Origins { share, salt } => {
                draw(salt, "sick origin", ends.origin.into()).chance(share)
            }
            Self::Tenant(tenant) => ends.tenant == tenant,
            Self::OwnProcess { share, salt } => {
                draw(salt, "origin without", ends.origin.into()).chance(share)
            }
        }
    }
}

impl fmt::Display for SickLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses { origin, share, .. } => {
                write!(f, "{:.1} % of the addresses at o{origin}", share * 100.0)
            }
            Self::TenantAtOrigin { tenant, origin } => write!(f, "t{tenant} at o{origin}"),
            Self::Origin(origin) => write!(f, "o{origin}"),
            Self::Origins { share, .. } => write!(f, "{:.1} % of the origins", share * 100.0),
            Self::Tenant(tenant) => write!(f, "all of t{tenant}"),
            Self::OwnProcess { share, .. } => {
                write!(f, "our own process at {:.1} % of the origins", share * 100.0)
            }
        }
    }
}

/// Where so much is sick that the rest cannot be told from it.
#[derive(Debug, Default)]
pub struct SickGround {
    tenants: HashSet<(u32, u32)>,
    origins: HashSet<u32>,
}

impl SickGround {
    /// From whom the messages concern, and whether they are sick themselves.
    pub fn of(messages: impl Iterator<Item = (MessageEnds, bool)>) -> Self {
        let mut addresses: HashMap<(u32, u32), HashMap<u32, bool>> = HashMap::new();
        for (MessageEnds { tenant, origin, address }, sick) in messages {
            *addresses.entry((tenant, origin)).or_default().entry(address).or_default() |= sick;
        }
        let mut ground = Self::default();
        let mut origins: HashMap<u32, Vec<u32>> = HashMap::new();
        for ((tenant, origin), of_tenant) in addresses {
            let sick = of_tenant.values().filter(|sick| **sick).count();
            if sick as f64 >= SICK_SHARE_MAX * of_tenant.len() as f64 {
                ground.tenants.insert((tenant, origin));
            }
            origins.entry(origin).or_default().push(tenant);
        }
        for (origin, all) in origins {
            let sick = all.iter().filter(|t| ground.tenants.contains(&(**t, origin))).count();
            if all.len() > 1 && sick as f64 >= SICK_TENANTS_MAX * all.len() as f64 {
                ground.origins.insert(origin);
            }
        }
        ground
    }

    pub fn holds(&self, ends: MessageEnds) -> bool {
        self.origins.contains(&ends.origin) || self.tenants.contains(&(ends.tenant, ends.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(tenant: u32, address: u32) -> MessageEnds {
        MessageEnds { tenant, origin: 1, address }
    }

    #[test]
    fn a_tenant_with_many_sick_addresses_counts_as_sick_and_with_few_not() {
        let ground =
            |sick| SickGround::of((0..10).map(|address| (ends(7, address), address < sick)));
        assert!(ground(4).holds(ends(7, 9)));
        assert!(!ground(3).holds(ends(7, 9)));
        assert!(!ground(4).holds(ends(8, 9)), "another tenant does not");
    }

    #[test]
    fn an_origin_where_most_tenants_are_sick_counts_as_sick() {
        let ground = |sick| SickGround::of((0..10).map(|tenant| (ends(tenant, 0), tenant < sick)));
        assert!(ground(6).holds(ends(9, 5)));
        assert!(!ground(5).holds(ends(9, 5)));
    }
}
