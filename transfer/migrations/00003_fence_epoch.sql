-- +goose Up
-- Fences are comparable only within an epoch: the columns get that name.
ALTER TABLE accounts RENAME COLUMN fence_source TO fence_epoch;
ALTER TABLE ledger_entries RENAME COLUMN fence_source TO fence_epoch;
ALTER TABLE fence_epochs RENAME COLUMN source TO epoch;
