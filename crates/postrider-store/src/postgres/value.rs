//! Values as PostgreSQL takes and gives them.

use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// An id as a `uuid`, whose order is the order of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PgId(pub(super) u128);

impl ToSql for PgId {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgId {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

pub(super) fn ids(ids: impl IntoIterator<Item = u128>) -> Vec<PgId> {
    ids.into_iter().map(PgId).collect()
}

/// A column of a row; an error if it has another type or is absent.
pub(super) fn get<'a, T: FromSql<'a>>(
    row: &'a Row,
    column: &str,
) -> Result<T, tokio_postgres::Error> {
    row.try_get(column)
}
