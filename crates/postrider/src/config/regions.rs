//! The names of regions: which there are, and who is where.

use postrider_core::RegionNumber;
use postrider_core::model::region::REGIONS_MAX;

use super::{Config, ConfigError};

impl Config {
    /// The number of a region of the list.
    pub fn region_number(&self, name: &str) -> Option<RegionNumber> {
        let place = self.store.regions.iter().position(|region| region == name)?;
        RegionNumber::new(place)
    }
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let regions = &config.store.regions;
    let wrong = |field: &str, found: &str, allowed: &str| {
        Err(ConfigError::invalid(field, format!("{found:?}"), allowed))
    };
    if !regions.is_empty() && !config.store.is_shared() {
        let allowed = "none: only servers that share a store in PostgreSQL or Redis have regions";
        return wrong("store.regions", &regions.join(", "), allowed);
    }
    if regions.len() > REGIONS_MAX {
        return wrong("store.regions", &regions.join(", "), "at most 4 regions");
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for (place, name) in regions.iter().enumerate() {
        if name.is_empty() || name.len() > 40 || !name.chars().all(is_plain) {
            let allowed = "names of 1 to 40 lower-case letters, digits and hyphens";
            return wrong("store.regions", name, allowed);
        }
        if regions[..place].contains(name) {
            return wrong("store.regions", name, "each name once");
        }
    }
    let listed = if regions.is_empty() {
        "one of store.regions, which names none".to_owned()
    } else {
        format!("one of store.regions: {}", regions.join(", "))
    };
    let own = config.server.region.iter().map(|region| ("server.region".to_owned(), region));
    let tenants = config.tenants.iter();
    let pinned = tenants.filter_map(|(name, tenant)| {
        Some((format!("tenants.{name}.region"), tenant.region.as_ref()?))
    });
    let accounts = config.accounts.iter().filter_map(|(name, account)| {
        Some((format!("accounts.{name}.near"), account.near.as_ref()?))
    });
    for (field, region) in own.chain(pinned).chain(accounts) {
        if !regions.contains(region) {
            return wrong(&field, region, &listed);
        }
    }
    match config.server.node.as_deref().filter(|node| node.contains('@')) {
        Some(node) => wrong("server.node", node, "a name without @"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let config: Config = toml::from_str(text).unwrap();
        check(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_region_has_to_be_in_the_list_of_the_store() {
        let store = "[store]\nurl = \"postgres://db/mail\"\nregions = [\"eu\", \"us\"]\n";
        assert_eq!(
            checked(&format!(
                "{store}[server]\nregion = \"us\"\n[tenants.acme]\nregion = \"eu\"\n"
            )),
            Ok(())
        );
        let pinned = checked(&format!("{store}[tenants.acme]\nregion = \"asia\"\n")).unwrap_err();
        assert_eq!(pinned, "tenants.acme.region = \"asia\": one of store.regions: eu, us");
        let own = checked("[server]\nregion = \"eu\"\n").unwrap_err();
        assert_eq!(own, "server.region = \"eu\": one of store.regions, which names none");
    }

    #[test]
    fn a_list_that_cannot_work_is_refused() {
        let list =
            |list: &str| checked(&format!("[store]\nurl = \"redis://db/0\"\nregions = {list}\n"));
        assert!(list("[\"a\", \"b\", \"c\", \"d\", \"e\"]").unwrap_err().contains("at most 4"));
        assert!(list("[\"a\", \"a\"]").unwrap_err().contains("each name once"));
        assert!(list("[\"EU west\"]").unwrap_err().contains("lower-case"));
        let alone = checked("[store]\nregions = [\"eu\"]\n").unwrap_err();
        assert!(alone.contains("PostgreSQL or Redis"), "{alone}");
    }
}
