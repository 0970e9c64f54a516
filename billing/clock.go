package billing

import (
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// clock tells the database's time, which windows go by: this process's, and by how much the database's is ahead.
type clock struct{ ahead atomic.Int64 }

// read takes in the database's time, which was asked for when sent.
func (c *clock) read(row db.Row, sent time.Time) error {
	var now int64
	if err := row.Scan(&now); err != nil {
		return err
	}
	c.ahead.Store(int64(time.UnixMicro(now).Sub(sent.Add(time.Since(sent) / 2))))
	return nil
}

// now is the database's time, to the microsecond.
func (s *Service) now() time.Time {
	return time.Now().UTC().Add(time.Duration(s.clock.ahead.Load())).Truncate(time.Microsecond)
}
