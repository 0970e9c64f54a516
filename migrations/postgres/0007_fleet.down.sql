-- Removes what is known of processes, their counts of calls, and the last starts by triggers.
DROP TABLE IF EXISTS trigger_start, traffic, process;
