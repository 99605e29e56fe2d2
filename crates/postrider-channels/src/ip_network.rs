//! Networks of IP addresses, written as `10.0.0.0/8`. Resolves no names.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of addresses with a common beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct IpNetwork {
    address: IpAddr,
    /// How many bits all addresses of it share.
    prefix: u8,
}

impl IpNetwork {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits())
                    .checked_shr(32 - u32::from(self.prefix))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits())
                    .checked_shr(128 - u32::from(self.prefix))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }

    /// Whether it is one address.
    pub fn is_single(&self) -> bool {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        self.prefix == bits
    }
}

impl FromStr for IpNetwork {
    type Err = String;

    /// Without a length it is one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(60).collect();
        let wrong =
            || format!("{shown:?} is not a network: use one such as 10.0.0.0/8 or 2001:db8::/32");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
        if prefix > bits {
            return Err(wrong());
        }
        let network = Self { address, prefix };
        let first = network.first();
        if first != address {
            return Err(format!("{shown:?} has bits behind its length: use {first}/{prefix}"));
        }
        Ok(network)
    }
}

impl IpNetwork {
    /// The first address of the network.
    fn first(&self) -> IpAddr {
        let prefix = u32::from(self.prefix);
        match self.address {
            IpAddr::V4(own) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                IpAddr::V4((own.to_bits() & mask).into())
            }
            IpAddr::V6(own) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                IpAddr::V6((own.to_bits() & mask).into())
            }
        }
    }
}

impl TryFrom<String> for IpNetwork {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<IpNetwork> for String {
    fn from(network: IpNetwork) -> Self {
        network.to_string()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<IpNetwork>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_beginning() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            assert_eq!(contains(network, address), expected, "{network} {address}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_an_example() {
        for text in ["", "ten", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0/8", "10.0.0.0/"] {
            let error = text.parse::<IpNetwork>().unwrap_err();
            assert!(error.contains("10.0.0.0/8"), "{error}");
        }
        let error = "10.1.2.3/8".parse::<IpNetwork>().unwrap_err();
        assert!(error.ends_with("use 10.0.0.0/8"), "{error}");
    }
}
