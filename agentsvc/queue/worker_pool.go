package queue

import "time"

// workerPool runs functions on goroutines that are reused for idleTimeout. A run's call chain is deep, and a
// goroutine that executed one before already has a stack of that size. The number of goroutines is not limited here;
// the slot pools limit the runs.
type workerPool chan func()

// idleTimeout is how long a goroutine waits for its next function before it ends.
const idleTimeout = 250 * time.Millisecond

// runFunc executes f on an idle goroutine, or on a new one. The channel has no buffer: the send succeeds only if a
// goroutine waits.
func (c workerPool) runFunc(f func()) {
	select {
	case c <- f:
	default:
		go c.serveFuncs(f)
	}
}

// serveFuncs executes f and then what it receives, until idleTimeout passes without a function.
func (c workerPool) serveFuncs(f func()) {
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	for {
		f()
		idle.Reset(idleTimeout)
		select {
		case f = <-c:
		case <-idle.C:
			return
		}
	}
}
