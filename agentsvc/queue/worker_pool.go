package queue

import "time"

// workerPool runs functions on goroutines of their own. One that is done stays for a while and takes the next: runs go many calls
// deep, and a goroutine that has been there has the stack for it.
type workerPool chan func()

// idleTimeout is how long a goroutine waits for its next function.
const idleTimeout = 250 * time.Millisecond

func (c workerPool) runFunc(f func()) {
	select {
	case c <- f:
	default:
		go c.serveFuncs(f)
	}
}

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
