package billing

import (
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// databaseClock tells the database's time, which windows go by: this process's, and by how much the database's is ahead.
type databaseClock struct{ offset atomic.Int64 }

// readTime takes in the database's time, which was asked for when sent.
func (c *databaseClock) readTime(row db.Row, sent time.Time) error {
	var now int64
	if err := row.Scan(&now); err != nil {
		return err
	}
	c.offset.Store(int64(time.UnixMicro(now).Sub(sent.Add(time.Since(sent) / 2))))
	return nil
}

// databaseNow is the database's time, to the microsecond.
func (s *Service) databaseNow() time.Time {
	return time.Now().UTC().Add(time.Duration(s.clock.offset.Load())).Truncate(time.Microsecond)
}
