package audit

import (
	"fmt"
	"slices"
)

// maxReportedFlaws bounds the flaws that are listed for one chain; the rest is counted.
const maxReportedFlaws = 100

// Flaw is a place where a chain is not as the platform wrote it.
type Flaw struct {
	// Seq is the sequence number of the entry concerned, 0 if the flaw is about the chain as a whole.
	Seq int64
	// ID is the id of that entry.
	ID string
	// Text describes the flaw for people.
	Text string
}

// Result is the result of verifying one chain, or with an empty AppID the export as a whole.
type Result struct {
	// App is the app's name in the chain's last entry, "" for the platform's own chain and for the export as a whole.
	App   string
	AppID string
	// Entries is the number of entries read; for the export as a whole the number of chains.
	Entries int64
	// Hash is the hash of the last entry.
	Hash  string
	Flaws []Flaw
	// OmittedFlaws counts the flaws beyond maxReportedFlaws.
	OmittedFlaws int64
}

// addFlaw adds a flaw at e, or about the whole chain if e is nil.
func (r *Result) addFlaw(e *Entry, format string, args ...any) {
	if len(r.Flaws) >= maxReportedFlaws {
		r.OmittedFlaws++
		return
	}
	f := Flaw{Text: fmt.Sprintf(format, args...)}
	if e != nil {
		f.Seq, f.ID = e.Seq, e.ID
	}
	r.Flaws = append(r.Flaws, f)
}

// Verifier verifies an exported audit trail line by line, in bounded memory: each entry's hash and its link to the
// entry before, the sealed head of each chain, and the number of chains. Call AddLine for every line and then
// [Verifier.Close].
type Verifier struct {
	// RequiredHashes are hashes of entries that must occur, taken from earlier verifications. They reveal a trail that
	// was rewritten as a whole. AddLine removes those it has seen.
	RequiredHashes []string
	// OnResult is called with the result of each chain after its last line. It must be set.
	OnResult func(Result)

	// current is the result of the chain being read, nil between chains; seq is the number of its last entry.
	current *Result
	seq     int64
	// chains counts the completed chains.
	chains int64
	// ended is set after the end of the export.
	ended bool
	// trail is the result about the export as a whole.
	trail Result
}

// AddLine verifies the next line of the export.
func (v *Verifier) AddLine(l Line) {
	switch {
	case v.ended:
		v.trail.addFlaw(nil, "there are lines after its end")
	case l.Entry != nil:
		v.verifyEntry(l.Entry)
	case l.Head != nil:
		v.verifyHead(l.Head)
	case l.End != nil:
		v.verifyEnd(l.End)
	}
}

// currentChain returns the result of the chain of app, and starts one if another chain was being read.
func (v *Verifier) currentChain(app string) *Result {
	if v.current != nil && v.current.AppID != app {
		v.closeWithoutHead()
	}
	if v.current == nil {
		v.current, v.seq = &Result{AppID: app}, 0
	}
	return v.current
}

// closeWithoutHead ends the chain being read, if any, with the flaw that its head is missing.
func (v *Verifier) closeWithoutHead() {
	if v.current != nil {
		v.current.addFlaw(nil, "its head is missing")
		v.closeChain()
	}
}

// closeChain reports the result of the chain being read.
func (v *Verifier) closeChain() {
	v.chains++
	v.OnResult(*v.current)
	v.current = nil
}

// verifyEntry checks an entry's number, its link to the entry before and its hash.
func (v *Verifier) verifyEntry(e *Entry) {
	now := v.currentChain(string(e.AppID))
	switch missing := e.Seq - v.seq - 1; {
	case missing == 1:
		now.addFlaw(e, "the entry before it is missing")
	case missing > 0:
		now.addFlaw(e, "%d entries before it are missing", missing)
	case missing < 0:
		now.addFlaw(e, "its number is a duplicate")
	case e.Prev != now.Hash:
		now.addFlaw(e, "it does not follow from the entry before it: one was inserted, moved or replaced")
	}
	if hash, err := e.ComputeHash(e.Prev); err != nil || hash != e.Hash {
		now.addFlaw(e, "it was changed: its hash does not match its content")
	}
	v.seq = e.Seq
	now.App, now.Hash, now.Entries = e.App, e.Hash, now.Entries+1
	v.RequiredHashes = slices.DeleteFunc(v.RequiredHashes, func(hash string) bool { return hash == e.Hash })
}

// verifyHead compares the head with the entries read and ends the chain.
func (v *Verifier) verifyHead(h *Head) {
	now := v.currentChain(string(h.AppID))
	switch {
	case !h.Sealed:
		now.addFlaw(nil, "its head is missing, or not as this platform sealed it; if stoa secrets status counts rows under an unknown master key, the server lacks that key")
	case h.Entries > v.seq:
		now.addFlaw(nil, "its last entries are missing: %d to %d", v.seq+1, h.Entries)
	case h.Entries < v.seq:
		now.addFlaw(nil, "there are entries after its end, which is at %d", h.Entries)
	case h.Hash != now.Hash:
		now.addFlaw(nil, "its last entry is not the one that its head names")
	}
	v.closeChain()
}

// verifyEnd checks the number of chains. A partial export cannot be verified, since the missing entries are unknown.
func (v *Verifier) verifyEnd(e *End) {
	v.closeWithoutHead()
	v.ended = true
	switch {
	case e.Part:
		v.trail.addFlaw(nil, "it was filtered by action, actor or time and cannot be verified")
	case !e.Sealed:
		v.trail.addFlaw(nil, "the number of its chains is not as this platform sealed it")
	case e.Chains != v.chains:
		v.trail.addFlaw(nil, "there are %d chains and should be %d", v.chains, e.Chains)
	}
}

// Close returns the result about the export as a whole.
func (v *Verifier) Close() Result {
	if v.closeWithoutHead(); !v.ended {
		v.trail.addFlaw(nil, "its end is missing: it was cut off")
	}
	for _, hash := range v.RequiredHashes {
		v.trail.addFlaw(nil, "no entry has the hash %s", hash)
	}
	v.trail.Entries = v.chains
	return v.trail
}
