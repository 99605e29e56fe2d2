//! Who got how much of a provider that all want more of.

use postrider_core::Timestamp;

use super::Known;
use crate::plan::Plan;

#[derive(Debug, Default)]
pub(crate) struct Fairness {}

impl Fairness {
    pub(crate) fn new(_: &Plan) -> Self {
        Self::default()
    }

    pub(crate) fn arrived(&mut self, _: usize, _: &[Known]) {}

    pub(crate) fn left(&mut self, _: usize, _: &[Known]) {}

    pub(crate) fn called(&mut self, _: usize, _: &[Known], _: Timestamp) {}
}
