-- Addresses that were deleted: messages whose order key is below this one are not sent to them any more.
ALTER TABLE gone ADD COLUMN deleted_before bigint;
CREATE INDEX gone_deleted ON gone (deleted_before) WHERE deleted_before IS NOT NULL;
