//! Aliases: other ids of a recipient. A recipient of such an id, say an anonymous one, is merged into the known one:
//! its words, its attributes and its addresses go there. Where both said something, a no wins.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::TenantId;
use postrider_core::model::recipient::RecipientProfile;
use postrider_core::policy::audience::{CategoryPreference, Choice, Preferences};
use postrider_core::ports::store::{EntryKey, EntryKind, EntryVersion, NewAddress};

use super::profiles::{change, check_room, delete, entry, put, read};
use crate::api::SharedState;
use crate::api::parameters::quoted;
use crate::api::problem::{ApiResult, Problem};

/// Addresses that are read at once.
const PAGE: usize = 200;

/// Refuses ids that stand for somebody else.
pub(super) async fn check_aliases(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
    aliases: &[Box<str>],
) -> ApiResult<()> {
    for alias in aliases {
        let Some(known) = entry(app, EntryKey::new(tenant, EntryKind::Alias, alias)).await? else {
            continue;
        };
        if read::<String>(&known)? != id {
            let allowed = "an id that is no alias of another recipient";
            return Err(Problem::field("aliases", quoted(alias), allowed));
        }
    }
    Ok(())
}

/// Makes the aliases of a recipient stand for it, and forgets those that do not any more.
pub(super) async fn settle_aliases(
    app: &SharedState,
    tenant: &TenantId,
    id: &Arc<str>,
    before: &[Box<str>],
    now: &[Box<str>],
) -> ApiResult<()> {
    let gone = before.iter().filter(|alias| !now.contains(alias));
    let gone: Vec<_> = gone.map(|alias| EntryKey::new(tenant, EntryKind::Alias, alias)).collect();
    if !gone.is_empty() {
        delete(app, gone).await?;
    }
    for alias in now.iter().filter(|alias| !before.contains(alias)) {
        check_room(app, tenant, 1)?;
        app.audience.note_kind(tenant, EntryKind::Alias).await?;
        let key = EntryKey::new(tenant, EntryKind::Alias, alias);
        // From now on, what names the alias is for this recipient.
        if !put(app, key.clone(), &&**id, EntryVersion::NONE).await? {
            check_aliases(app, tenant, id, std::slice::from_ref(alias)).await?;
        }
        merge_recipient(app, tenant, alias, id).await?;
    }
    Ok(())
}

/// Moves what is known of the recipient `from`, if there is one, and its addresses. Repeated, it goes on.
async fn merge_recipient(
    app: &SharedState,
    tenant: &TenantId,
    from: &str,
    into: &Arc<str>,
) -> ApiResult<()> {
    let key = EntryKey::new(tenant, EntryKind::Recipient, from);
    if let Some(old) = entry(app, key.clone()).await? {
        let old: RecipientProfile = read(&old)?;
        change(app, tenant, into, true, |profile| {
            absorb(profile, &old);
            Ok(())
        })
        .await?;
        delete(app, vec![key]).await?;
    }
    let mut cursor = None;
    loop {
        let page = app.store.addresses(tenant, Some(from), cursor, PAGE).await?;
        for address in page.items {
            let (Some(target), hash) = (address.target, address.hash) else { continue };
            let (tenant, recipient) = (tenant.clone(), Some(into.clone()));
            app.store.put_address(NewAddress { tenant, recipient, target, hash }).await?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// What the known recipient lacks comes from the other one.
fn absorb(profile: &mut RecipientProfile, other: &RecipientProfile) {
    profile.zone = profile.zone.take().or_else(|| other.zone.clone());
    profile.locale = profile.locale.take().or_else(|| other.locale.clone());
    profile.quiet_hours = profile.quiet_hours.take().or_else(|| other.quiet_hours.clone());
    for (name, value) in &other.attributes {
        profile.attributes.entry(name.clone()).or_insert_with(|| value.clone());
    }
    merge_preferences(&mut profile.preferences, &other.preferences);
}

fn merge_preferences(into: &mut Preferences, other: &Preferences) {
    into.all = stricter(into.all, other.all);
    merge_choices(&mut into.channels, &other.channels);
    into.snooze_until = into.snooze_until.max(other.snooze_until);
    for (name, own) in &other.categories {
        let known = into.categories.entry(name.clone()).or_default();
        let CategoryPreference { choice, channels, snooze_until } = own;
        known.choice = stricter(known.choice, *choice);
        merge_choices(&mut known.channels, channels);
        known.snooze_until = known.snooze_until.max(*snooze_until);
    }
}

fn merge_choices<K: Ord + Copy>(into: &mut BTreeMap<K, Choice>, other: &BTreeMap<K, Choice>) {
    for (kind, choice) in other {
        let known = into.get(kind).copied();
        into.extend(stricter(known, Some(*choice)).map(|choice| (*kind, choice)));
    }
}

fn stricter(one: Option<Choice>, other: Option<Choice>) -> Option<Choice> {
    match (one, other) {
        (Some(Choice::No), _) | (_, Some(Choice::No)) => Some(Choice::No),
        (one, other) => one.or(other),
    }
}
