package response

import (
	"runtime"
	"sync/atomic"
	"time"
)

// minCollectInterval is the shortest time between two collections by collectGarbage.
const minCollectInterval = time.Second

// lastCollected is when collectGarbage collected last, in Unix nanoseconds. It is for the whole process.
var lastCollected atomic.Int64

// collectGarbage collects garbage, of which a large message leaves much, at most once in minCollectInterval: a
// collection takes processor time from all requests, and a sender of large messages could otherwise cause one for each.
func collectGarbage() {
	now := time.Now().UnixNano()
	if last := lastCollected.Load(); now-last >= int64(minCollectInterval) && lastCollected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}
