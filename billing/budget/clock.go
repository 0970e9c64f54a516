package budget

import (
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// databaseClock is the offset of the database's clock from this process's, in nanoseconds. Windows go by the database's
// clock, so that all processes agree on when a window begins.
type databaseClock struct{ offset atomic.Int64 }

// readTime sets the offset from a row with stoa_now(). sent is when the query was sent: half of the round trip is added
// to it.
func (c *databaseClock) readTime(row db.Row, sent time.Time) error {
	var now int64
	if err := row.Scan(&now); err != nil {
		return err
	}
	c.offset.Store(int64(time.UnixMicro(now).Sub(sent.Add(time.Since(sent) / 2))))
	return nil
}

// databaseNow returns the database's time as computed from the offset, to the microsecond, the resolution of all stored
// times. It makes no query.
func (s *Service) databaseNow() time.Time {
	return time.Now().UTC().Add(time.Duration(s.clock.offset.Load())).Truncate(time.Microsecond)
}
