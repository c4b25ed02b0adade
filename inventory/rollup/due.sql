-- The days that are over for $1, since the first movement, and are not done; the oldest first. A day waits for each
-- transaction that has written and began before the end of the day: its COMMIT may be waiting for a standby.
SELECT day::date
FROM generate_series(
    (SELECT date_trunc('day', min(created_at) AT TIME ZONE 'UTC') FROM stock_movements),
    date_trunc('day', (now() - $1::interval) AT TIME ZONE 'UTC') - interval '1 day',
    interval '1 day') AS days (day)
WHERE NOT EXISTS (SELECT FROM roll_ups WHERE roll_ups.day = days.day::date AND done_at IS NOT NULL)
  AND NOT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL
      AND xact_start < (day + interval '1 day') AT TIME ZONE 'UTC')
ORDER BY day
