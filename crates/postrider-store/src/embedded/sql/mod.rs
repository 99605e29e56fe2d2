//! Everything that is SQL: tables, rows and statements. The statements run on the writer's connection, or on
//! a reader's.

pub(crate) mod accept;
pub(crate) mod audit;
pub(crate) mod counts;
pub(crate) mod dedup;
pub(crate) mod discard;
pub(crate) mod documents;
pub(crate) mod documents_step;
pub(crate) mod ended;
pub(crate) mod entries;
pub(crate) mod expiry;
pub(crate) mod holdings;
mod indexes;
pub(crate) mod lanes;
pub(crate) mod ledger_order;
pub(crate) mod marks;
mod old_index;
pub(crate) mod open;
pub(crate) mod pack;
pub(crate) mod prelude;
pub(crate) mod prune;
pub(crate) mod receipts;
pub(crate) mod refill;
pub(crate) mod rollups;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod schema;
mod set_aside;
pub(crate) mod settle;
pub(crate) mod statement;
pub(crate) mod strikes;
pub(crate) mod tags;
pub(crate) mod upgrade;
pub(crate) mod waiting;
