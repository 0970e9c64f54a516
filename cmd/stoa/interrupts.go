package main

import "sync"

// interrupts lets a command handle an interrupt of the process (Ctrl-C). One that no command handles ends the program.
type interrupts struct {
	mu     sync.Mutex
	caught chan struct{} // closed by the next interrupt; nil = it ends the program
}

// catch returns a channel that the next interrupt closes instead of ending the program. Only one interrupt is caught, and
// none after release.
func (i *interrupts) catch() (caught <-chan struct{}, release func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.caught = make(chan struct{})
	return i.caught, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.caught = nil
	}
}

// deliver reports whether a command handles the interrupt.
func (i *interrupts) deliver() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.caught == nil {
		return false
	}
	close(i.caught)
	i.caught = nil
	return true
}
