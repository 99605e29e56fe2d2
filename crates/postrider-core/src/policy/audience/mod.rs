//! Whether a person wants a message, and when: categories, preferences, suppressions, quiet hours and caps. Pure: what
//! is known of the person, the time and the rules are arguments.

mod category;
mod preferences;
mod quiet_hours;
mod resolution;
mod suppression;
mod verdict;

pub use category::*;
pub use preferences::*;
pub use quiet_hours::*;
pub use resolution::*;
pub use suppression::*;
pub use verdict::*;
