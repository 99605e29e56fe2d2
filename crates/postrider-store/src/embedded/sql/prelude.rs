//! What nearly every statement needs.

pub(crate) use postrider_core::model::id::{from_order_key, order_key, random_tail};
pub(crate) use postrider_core::ports::store::StoreResult;
pub(crate) use postrider_core::{DeliveryId, MessageId, State, TenantId, Timestamp};
pub(crate) use rusqlite::{Connection, Row, params};

pub(crate) use super::rows::{parse, row_id, to_json};
pub(crate) use super::statement::{
    all_rows, damaged, first_row, get, run, set_meta, sql, unsigned, value,
};
pub(crate) use crate::embedded::writer::Writer;
