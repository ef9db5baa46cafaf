-- lowest compatible version: 1
-- A worker's whole report: config source and age, sync times and failures, coordination policy, history
-- delivery, doors.

ALTER TABLE worker_registry ADD COLUMN status jsonb NOT NULL DEFAULT '{}';
