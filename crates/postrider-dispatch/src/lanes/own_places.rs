//! How this server's own places for calls are held, as one tenant sees it at one origin, in words for `explain`.
//! Decides nothing.

use std::fmt;

/// The places for calls that may take long: to slow addresses, and to origins that did not answer lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongPlaceUse {
    pub used: usize,
    pub of: usize,
    /// Those that the tenant holds, at all origins together.
    pub own: usize,
    /// Those that the origin holds, and may hold.
    pub at_origin: usize,
    pub origin_max: usize,
}

/// Which of this server's own places a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPlaceWait {
    /// One for a call of any kind.
    Any,
    /// The same, and there are no more because no more connections may be open.
    Connection,
    /// One for a call that may take long.
    Long,
}

/// What this server ran out of, so that nobody was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnShortage {
    /// The code of the outcome.
    pub code: Box<str>,
    /// The same in words; empty if there are none.
    pub detail: Box<str>,
}

/// The places for calls of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerPlaceUse {
    pub(super) used: usize,
    pub(super) of: usize,
    /// Those that the tenant holds at the origin.
    pub(super) own: usize,
    /// There are so many because no more connections may be open.
    pub(super) are_connections: bool,
}

impl fmt::Display for LongPlaceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, of, own, at_origin, origin_max } = *self;
        if used >= of {
            return write!(
                f,
                "all {of} long places of this server are held, {own} of them by this tenant"
            );
        }
        if at_origin >= origin_max {
            return write!(
                f,
                "calls to this provider hold {at_origin} of this server's {of} long places, as many as one provider may"
            );
        }
        let free = of - used;
        write!(
            f,
            "this tenant holds {own} of this server's {of} long places, and the {free} that are free are for other tenants"
        )
    }
}

impl fmt::Display for ServerPlaceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, of, own, are_connections } = *self;
        match are_connections {
            true => {
                write!(f, "it waits for a connection of this server: {used} of {of} are in use")?
            }
            false => write!(f, "{used} of this server's {of} places are in use")?,
        }
        write!(f, ", {own} of them by this tenant to this provider")?;
        if used < of {
            f.write_str("; the others are for other tenants and urgent classes")?;
        }
        if are_connections {
            f.write_str("; raise its limit of open files")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_long_places_is_named() {
        let all = LongPlaceUse { used: 2048, of: 2048, own: 680, at_origin: 9, origin_max: 512 };
        let words = |places: LongPlaceUse| places.to_string();
        assert_eq!(
            words(all),
            "all 2048 long places of this server are held, 680 of them by this tenant"
        );
        assert_eq!(
            words(LongPlaceUse { used: 600, at_origin: 512, ..all }),
            "calls to this provider hold 512 of this server's 2048 long places, as many as one provider may"
        );
        assert_eq!(
            words(LongPlaceUse { used: 1024, own: 1024, ..all }),
            "this tenant holds 1024 of this server's 2048 long places, and the 1024 that are free are for other tenants"
        );
    }

    #[test]
    fn where_connections_are_short_they_are_named() {
        let places = ServerPlaceUse { used: 20, of: 20, own: 3, are_connections: true };
        assert_eq!(
            places.to_string(),
            "it waits for a connection of this server: 20 of 20 are in use, 3 of them by this tenant to this \
             provider; raise its limit of open files"
        );
        let places = ServerPlaceUse { used: 18, are_connections: false, ..places };
        assert_eq!(
            places.to_string(),
            "18 of this server's 20 places are in use, 3 of them by this tenant to this provider; the others are \
             for other tenants and urgent classes"
        );
    }
}
