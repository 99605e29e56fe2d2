//! Parses `Retry-After`.
