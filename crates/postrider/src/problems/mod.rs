//! Problems: looks at figures every five seconds, keeps what is wrong as documents that every server sees, and lets
//! operators acknowledge and mute. The rules are in `postrider_core::policy::problems`.

mod figures;
mod kept;
mod monitor;
pub(crate) mod status_pages;

pub(crate) use kept::{change_kept, kept_problems};
pub(crate) use monitor::watch;
