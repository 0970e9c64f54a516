package queue

import "time"

// crew runs functions on goroutines of their own. One that is done stays for a while and takes the next: runs go many calls
// deep, and a goroutine that has been there has the stack for it.
type crew chan func()

// spare is how long a goroutine waits for its next function.
const spare = 250 * time.Millisecond

func (c crew) run(f func()) {
	select {
	case c <- f:
	default:
		go c.serve(f)
	}
}

func (c crew) serve(f func()) {
	rest := time.NewTimer(spare)
	defer rest.Stop()
	for {
		f()
		rest.Reset(spare)
		select {
		case f = <-c:
		case <-rest.C:
			return
		}
	}
}
