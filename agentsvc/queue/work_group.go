package queue

import "sync"

// workGroup counts work in progress until it is stopped.
type workGroup struct {
	wg sync.WaitGroup

	mu       sync.Mutex // guards stopping; begin adds to wg under it, so that nothing is added after stop
	stopping bool
}

// begin adds one piece of work, which wg.Done ends, and reports false once the group is stopped.
func (g *workGroup) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.wg.Add(1)
	return true
}

func (g *workGroup) isStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopping
}

// stop stops the group and returns a channel that is closed when all its work has ended. Work in progress may still
// add to wg.
func (g *workGroup) stop() (done chan struct{}) {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	done = make(chan struct{})
	go func() { g.wg.Wait(); close(done) }()
	return done
}
