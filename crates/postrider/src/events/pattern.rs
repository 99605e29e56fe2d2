//! Which events somebody wants: by kind, channel, class and tag. An empty list means all.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{EventKind, LoggedEvent};

/// At most so many entries in each list, and characters in each entry.
const ENTRIES_MAX: usize = 50;
const ENTRY_MAX: usize = 128;

/// Which events are wanted. An empty or missing list means all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventPattern {
    /// Such as `delivery.failed`, or `delivery.*` for a group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub types: Vec<String>,
    /// Such as `email`. Events without a channel are left out then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub channels: Vec<String>,
    /// Such as `otp`. Events without a class are left out then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub classes: Vec<String>,
    /// The message has at least one of these tags. Events without a message are left out then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub tags: Vec<String>,
}

/// An entry that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PatternFault {
    pub(crate) field: &'static str,
    pub(crate) found: String,
    pub(crate) allowed: String,
}

impl EventPattern {
    pub(crate) fn matches(&self, event: &LoggedEvent) -> bool {
        let is_in = |list: &[String], value: Option<&str>| {
            list.is_empty() || value.is_some_and(|value| list.iter().any(|entry| entry == value))
        };
        let is_meant = |pattern: &String| event.kind.is_meant_by(pattern);
        (self.types.is_empty() || self.types.iter().any(is_meant))
            && is_in(&self.channels, event.channel.as_deref())
            && is_in(&self.classes, event.class.as_deref())
            && (self.tags.is_empty() || self.tags.iter().any(|tag| event.tags.contains(tag)))
    }

    /// The first entry that cannot be used.
    pub(crate) fn check(&self, channels: &[&str]) -> Result<(), PatternFault> {
        let lists = [
            ("types", &self.types),
            ("channels", &self.channels),
            ("classes", &self.classes),
            ("tags", &self.tags),
        ];
        for (field, list) in lists {
            let fault = |found: String, allowed: String| PatternFault { field, found, allowed };
            if list.len() > ENTRIES_MAX {
                return Err(fault(
                    list.len().to_string(),
                    format!("at most {ENTRIES_MAX} entries"),
                ));
            }
            if let Some(wrong) = list.iter().find(|entry| !(1..=ENTRY_MAX).contains(&entry.len())) {
                return Err(fault(shown(wrong), format!("1 to {ENTRY_MAX} bytes each")));
            }
        }
        let is_unknown = |pattern: &&String| !EventKind::ALL.iter().any(|k| k.is_meant_by(pattern));
        if let Some(wrong) = self.types.iter().find(is_unknown) {
            let allowed = format!("{}, or a group such as delivery.*", EventKind::names());
            return Err(PatternFault { field: "types", found: shown(wrong), allowed });
        }
        if let Some(wrong) = self.channels.iter().find(|name| !channels.contains(&name.as_str())) {
            let allowed = channels.join(", ");
            return Err(PatternFault { field: "channels", found: shown(wrong), allowed });
        }
        Ok(())
    }
}

fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|entry| (*entry).to_owned()).collect()
    }

    #[test]
    fn every_list_narrows_and_an_empty_one_does_not() {
        let event = LoggedEvent {
            channel: Some("email".to_owned()),
            class: Some("otp".to_owned()),
            tags: list(&["vip", "eu"]),
            ..LoggedEvent::new(EventKind::DeliverySent, "x".to_owned(), Default::default())
        };
        let all = EventPattern::default();
        assert!(all.matches(&event));
        let with = |change: fn(&mut EventPattern)| {
            let mut pattern = EventPattern::default();
            change(&mut pattern);
            pattern.matches(&event)
        };
        assert!(with(|p| p.types = list(&["address.*", "delivery.*"])));
        assert!(!with(|p| p.types = list(&["address.*"])));
        assert!(with(|p| p.channels = list(&["sms", "email"])));
        assert!(!with(|p| p.channels = list(&["sms"])));
        assert!(!with(|p| p.classes = list(&["marketing"])));
        assert!(with(|p| p.tags = list(&["eu"])));
        assert!(!with(|p| (p.tags, p.classes) = (list(&["eu"]), list(&["marketing"]))));
        let bare = LoggedEvent::new(EventKind::ProblemOpened, "x".to_owned(), Default::default());
        let by_tag = EventPattern { tags: list(&["eu"]), ..EventPattern::default() };
        assert!(!by_tag.matches(&bare), "an event without a message has no tag");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let known = ["email", "sms"];
        let types = |entry: &str| EventPattern { types: list(&[entry]), ..Default::default() };
        assert_eq!(types("delivery.*").check(&known), Ok(()));
        let fault = types("delivery.lost").check(&known).unwrap_err();
        assert_eq!((fault.field, &*fault.found), ("types", "\"delivery.lost\""));
        let pattern = EventPattern { channels: list(&["fax"]), ..Default::default() };
        assert_eq!(pattern.check(&known).unwrap_err().allowed, "email, sms");
        let pattern = EventPattern { tags: vec!["x".repeat(200)], ..Default::default() };
        assert_eq!(pattern.check(&known).unwrap_err().field, "tags");
        let pattern = EventPattern { tags: list(&["x"; 51]), ..Default::default() };
        assert_eq!(pattern.check(&known).unwrap_err().found, "51");
    }
}
