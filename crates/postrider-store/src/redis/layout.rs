//! The layout of the keys. Forward only: a newer layout is refused.

use postrider_core::ports::store::StoreError;

use super::failure::RedisResult;
use super::link::{RedisLink, words};
use super::names::KeyNames;
use super::pack::{bytes, int};

/// The layout that this version writes.
pub(super) const LAYOUT: u32 = 1;

fn key(link: &RedisLink) -> String {
    KeyNames::new(&link.options().prefix).common("layout")
}

/// Absent if there is no store.
pub(super) async fn found(link: &RedisLink) -> RedisResult<Option<u32>> {
    let value = link.ask(&words(&[b"GET", key(link).as_bytes()])).await?;
    let found = bytes(value).map(|value| super::pack::text_int(&value)).transpose()?;
    Ok(found.map(|found| u32::try_from(found).unwrap_or(u32::MAX)))
}

/// Writes the layout if there is none. Several nodes may try at once.
pub(super) async fn set_up(link: &RedisLink) -> RedisResult<()> {
    let layout = LAYOUT.to_string();
    let set = words(&[b"SETNX", key(link).as_bytes(), layout.as_bytes()]);
    int(&link.ask(&set).await?)?;
    match found(link).await? {
        Some(found) if found > LAYOUT => {
            Err(StoreError::NewerLayout { found, known: LAYOUT }.into())
        }
        _ => Ok(()),
    }
}
