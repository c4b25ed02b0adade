-- +goose Up
-- One name for what a fence can be compared within: its epoch.
ALTER TABLE accounts RENAME COLUMN fence_source TO fence_epoch;
ALTER TABLE ledger_entries RENAME COLUMN fence_source TO fence_epoch;
ALTER TABLE fence_epochs RENAME COLUMN source TO epoch;
