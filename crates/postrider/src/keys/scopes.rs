//! What a key may do: a set of scopes. Says nothing about whose data it reaches.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One right of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope {
    /// Hand in and cancel messages; register and delete addresses; preview templates.
    Send,
    /// Read states, lists and figures, but no stored bodies.
    Read,
    /// Read stored bodies, and everything that `read` shows.
    Content,
    /// Replay and discard dead letters; release what a backup held.
    Replay,
    /// Change templates; pause lanes; forgive strikes; read and rotate signing keys.
    Manage,
    /// Everything, and the keys of others.
    Admin,
}

impl KeyScope {
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Read, Self::Content, Self::Replay, Self::Manage, Self::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Content => "content",
            Self::Replay => "replay",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct ScopeSet(u8);

impl ScopeSet {
    pub const ADMIN: Self = Self(1 << KeyScope::Admin as u8);
    /// What the scope `tenant` of older versions allowed.
    pub const TENANT: Self = Self(
        1 << KeyScope::Send as u8
            | 1 << KeyScope::Read as u8
            | 1 << KeyScope::Replay as u8
            | 1 << KeyScope::Manage as u8,
    );

    /// Whether a call that needs `scope` is allowed.
    pub fn allows(self, scope: KeyScope) -> bool {
        let with = |scope: KeyScope| self.0 & scope.bit() != 0;
        let implied = scope == KeyScope::Read && with(KeyScope::Content);
        with(scope) || with(KeyScope::Admin) || implied
    }

    /// Reads names. `tenant` stands for `send`, `read`, `replay` and `manage`. The error is the unknown name.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut bits = 0;
        for name in names {
            let name = name.trim();
            bits |= match KeyScope::ALL.into_iter().find(|scope| scope.name() == name) {
                Some(scope) => scope.bit(),
                None if name == "tenant" => Self::TENANT.0,
                None => return Err(name.to_owned()),
            };
        }
        if bits == 0 { Err(String::new()) } else { Ok(Self(bits)) }
    }

    /// What both allow; `None` if that is nothing.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let both = KeyScope::ALL.into_iter().filter(|s| self.allows(*s) && other.allows(*s));
        Self::parse(both.map(KeyScope::name)).ok()
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let known = KeyScope::ALL.into_iter().fold(0, |all, scope| all | scope.bit());
        (bits != 0 && bits & !known == 0).then_some(Self(bits))
    }

    pub fn names(self) -> Vec<&'static str> {
        let held = KeyScope::ALL.into_iter().filter(|scope| self.0 & scope.bit() != 0);
        held.map(KeyScope::name).collect()
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TENANT => f.write_str("tenant"),
            other => f.write_str(&other.names().join(",")),
        }
    }
}

impl From<ScopeSet> for Vec<String> {
    fn from(scopes: ScopeSet) -> Self {
        scopes.names().into_iter().map(str::to_owned).collect()
    }
}

impl TryFrom<Vec<String>> for ScopeSet {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        Self::parse(names.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> ScopeSet {
        ScopeSet::parse(text.split(',')).unwrap()
    }

    #[test]
    fn a_set_allows_what_it_names_and_nothing_else() {
        let cases = [
            ("send", "send"),
            ("send,read", "send read"),
            ("content", "read content"),
            ("replay", "replay"),
            ("manage", "manage"),
            ("tenant", "send read replay manage"),
            ("admin", "send read content replay manage admin"),
        ];
        for (text, expected) in cases {
            let allowed = KeyScope::ALL.into_iter().filter(|scope| set(text).allows(*scope));
            let allowed: Vec<_> = allowed.map(KeyScope::name).collect();
            assert_eq!(allowed.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_set_is_written_as_its_names_and_read_again() {
        assert_eq!(set("read, send").to_string(), "send,read");
        assert_eq!(set("manage,replay,read,send").to_string(), "tenant");
        assert_eq!(ScopeSet::parse(["root"]), Err("root".to_owned()));
        assert_eq!(ScopeSet::parse([]), Err(String::new()));
        let text = serde_json::to_string(&set("send,read")).unwrap();
        assert_eq!(text, r#"["send","read"]"#);
        assert_eq!(serde_json::from_str::<ScopeSet>(&text).unwrap(), set("send,read"));
    }
}
