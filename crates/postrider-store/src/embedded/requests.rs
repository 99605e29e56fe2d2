//! Requests to the writer: writes that share a transaction, and tasks that make their own.

use postrider_core::DeliveryId;
use postrider_core::ports::store::{StoreError, StoreResult};
use tokio::sync::oneshot;

use super::registry::NewAddressRow;
use super::sql::accept::NewMessageRows;
use super::sql::prune::PruneStep;
use super::sql::receipts::ReceiptRow;
use super::sql::settle::SettleRow;
use super::sql::statement::is_local;
use super::writer::Writer;

/// Runs on the writer's thread.
pub(crate) type WriterTask = Box<dyn FnOnce(&mut Writer) + Send>;

pub(crate) enum WriterRequest {
    Accept(GroupedWrite<NewMessageRows>),
    Settle(GroupedWrite<SettleRow>),
    Start(GroupedWrite<(DeliveryId, u64)>),
    Prune(GroupedWrite<PruneStep>),
    Register(GroupedWrite<NewAddressRow>),
    Receipt(GroupedWrite<ReceiptRow>),
    /// Anything rarer.
    Task(WriterTask),
    Close,
}

impl WriterRequest {
    /// The request as a write that shares a transaction with others; `None` if it is not one.
    pub(crate) fn as_shared_write(&mut self) -> Option<&mut dyn SharedWrite> {
        match self {
            Self::Accept(write) => Some(write),
            Self::Settle(write) => Some(write),
            Self::Start(write) => Some(write),
            Self::Prune(write) => Some(write),
            Self::Register(write) => Some(write),
            Self::Receipt(write) => Some(write),
            Self::Task(_) | Self::Close => None,
        }
    }
}

/// A row, prepared by the caller's thread, that the writer writes in a shared transaction.
pub(crate) trait SharedRow: Sized {
    type Answer;
    /// New work is refused while the disk is full.
    const IS_NEW_WORK: bool = false;

    /// How many rows of tables it takes.
    fn rows(&self) -> usize {
        1
    }

    /// How many bytes of content it brings.
    fn bytes(&self) -> usize {
        0
    }

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<Self::Answer>>;

    /// The same in a transaction of its own.
    fn transact(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<Self::Answer>> {
        writer.transact_surely(|writer| Self::write(rows, writer))
    }

    /// What is left to do for a row that cannot be written.
    fn write_damaged(&self, _: &mut Writer, error: StoreError) -> StoreResult<Self::Answer> {
        Err(error)
    }

    /// Writes the rows after the shared transaction failed. By halves, so that a bad row costs the others a few
    /// transactions.
    fn write_alone(rows: &[Self], writer: &mut Writer) -> Vec<StoreResult<Self::Answer>> {
        match (Self::transact(rows, writer), rows) {
            (Ok(answers), _) => answers.into_iter().map(Ok).collect(),
            (Err(error), [row]) if is_local(&error) => vec![row.write_damaged(writer, error)],
            (Err(error), _) if is_local(&error) => {
                let (first, second) = rows.split_at(rows.len() / 2);
                let mut answers = Self::write_alone(first, writer);
                answers.extend(Self::write_alone(second, writer));
                answers
            }
            (Err(error), _) => rows.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// An answer to each row, in order. The rows come back with them, so that the caller frees them instead
/// of the writer.
pub(crate) type WriteResult<R> = StoreResult<(Vec<StoreResult<<R as SharedRow>::Answer>>, Vec<R>)>;

/// Rows of one caller, and where the answers go.
pub(crate) struct GroupedWrite<R: SharedRow> {
    rows: Vec<R>,
    answers: Vec<StoreResult<R::Answer>>,
    reply_to: Option<oneshot::Sender<WriteResult<R>>>,
}

impl<R: SharedRow> GroupedWrite<R> {
    pub(crate) fn new(rows: Vec<R>, reply_to: oneshot::Sender<WriteResult<R>>) -> Self {
        Self { rows, answers: Vec::new(), reply_to: Some(reply_to) }
    }
}

/// A [`GroupedWrite`] of any kind of rows.
pub(crate) trait SharedWrite {
    fn is_new_work(&self) -> bool;
    fn rows(&self) -> usize;
    fn bytes(&self) -> usize;
    fn write(&mut self, writer: &mut Writer) -> StoreResult<()>;
    fn write_alone(&mut self, writer: &mut Writer);
    /// Sends the answers, or why there are none. A caller that went away does not matter.
    fn reply(&mut self, result: StoreResult<()>);
}

impl<R: SharedRow> SharedWrite for GroupedWrite<R> {
    fn is_new_work(&self) -> bool {
        R::IS_NEW_WORK
    }

    fn rows(&self) -> usize {
        self.rows.iter().map(R::rows).sum()
    }

    fn bytes(&self) -> usize {
        self.rows.iter().map(R::bytes).sum()
    }

    fn write(&mut self, writer: &mut Writer) -> StoreResult<()> {
        self.answers = R::write(&self.rows, writer)?.into_iter().map(Ok).collect();
        Ok(())
    }

    fn write_alone(&mut self, writer: &mut Writer) {
        self.answers = R::write_alone(&self.rows, writer);
    }

    fn reply(&mut self, result: StoreResult<()>) {
        let Some(reply_to) = self.reply_to.take() else { return };
        let taken = (std::mem::take(&mut self.answers), std::mem::take(&mut self.rows));
        drop(reply_to.send(result.map(|()| taken)));
    }
}
