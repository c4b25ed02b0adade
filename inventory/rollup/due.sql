-- The days that are over for $1, since the first movement, and are not done; the oldest first.
SELECT day::date
FROM generate_series(
    (SELECT date_trunc('day', min(created_at) AT TIME ZONE 'UTC') FROM stock_movements),
    date_trunc('day', (now() - $1::interval) AT TIME ZONE 'UTC') - interval '1 day',
    interval '1 day') AS days (day)
WHERE NOT EXISTS (SELECT FROM roll_ups WHERE roll_ups.day = days.day::date AND done_at IS NOT NULL)
ORDER BY day
