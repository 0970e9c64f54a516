package tenancy

import (
	"fmt"
	"slices"
)

// maxReportedFlaws bounds how many flaws of one chain are told.
const maxReportedFlaws = 100

// Flaw is a place where a chain is not as it was made.
type Flaw struct {
	Seq  int64  // of the entry there; 0 = it is about the chain as a whole
	ID   string // of that entry
	Text string // what is wrong
}

// VerifyResult is what was found out about one chain.
type VerifyResult struct {
	App          string // name of the app in its last entry; "" = the platform's own chain, or the trail as a whole
	AppID        string
	Entries      int64
	Hash         string // of the last entry
	Flaws        []Flaw
	OmittedFlaws int64 // flaws that are not told
}

func (v *VerifyResult) addFlaw(e *AuditEntry, format string, args ...any) {
	if len(v.Flaws) >= maxReportedFlaws {
		v.OmittedFlaws++
		return
	}
	f := Flaw{Text: fmt.Sprintf(format, args...)}
	if e != nil {
		f.Seq, f.ID = e.Seq, e.ID
	}
	v.Flaws = append(v.Flaws, f)
}

// Verifier finds out whether an exported trail is as it was made, line by line and in bounded memory. [Verifier.Close]
// ends it.
type Verifier struct {
	// RequiredHashes are hashes of entries that must be there: heads of earlier verifications, of which the platform keeps nothing.
	RequiredHashes []string
	// OnResult is told what was found out about a chain when its last line has come.
	OnResult func(VerifyResult)

	current *VerifyResult // of the chain whose lines come
	seq     int64         // of its last entry
	chains  int64
	ended   bool
	trail   VerifyResult
}

// AddLine looks at the next line.
func (v *Verifier) AddLine(l ExportLine) {
	switch {
	case v.ended:
		v.trail.addFlaw(nil, "there are lines behind its end")
	case l.Entry != nil:
		v.verifyEntry(l.Entry)
	case l.Head != nil:
		v.verifyHead(l.Head)
	case l.End != nil:
		v.verifyEnd(l.End)
	}
}

// currentChain begins with the lines of a chain, unless it has.
func (v *Verifier) currentChain(app string) *VerifyResult {
	if v.current != nil && v.current.AppID != app {
		v.closeWithoutHead()
	}
	if v.current == nil {
		v.current, v.seq = &VerifyResult{AppID: app}, 0
	}
	return v.current
}

// closeWithoutHead ends a chain whose head has not come.
func (v *Verifier) closeWithoutHead() {
	if v.current != nil {
		v.current.addFlaw(nil, "its head is missing")
		v.closeChain()
	}
}

func (v *Verifier) closeChain() {
	v.chains++
	v.OnResult(*v.current)
	v.current = nil
}

func (v *Verifier) verifyEntry(e *AuditEntry) {
	now := v.currentChain(string(e.AppID))
	switch missing := e.Seq - v.seq - 1; {
	case missing == 1:
		now.addFlaw(e, "the entry before it is missing")
	case missing > 0:
		now.addFlaw(e, "%d entries before it are missing", missing)
	case missing < 0:
		now.addFlaw(e, "its number was there before")
	case e.Prev != now.Hash:
		now.addFlaw(e, "it does not follow from the entry before it: one was inserted, moved or replaced")
	}
	if hash, err := e.ComputeHash(e.Prev); err != nil || hash != e.Hash {
		now.addFlaw(e, "it was changed: its hash was made of something else")
	}
	v.seq = e.Seq
	now.App, now.Hash, now.Entries = e.App, e.Hash, now.Entries+1
	v.RequiredHashes = slices.DeleteFunc(v.RequiredHashes, func(hash string) bool { return hash == e.Hash })
}

func (v *Verifier) verifyHead(h *ExportedHead) {
	now := v.currentChain(string(h.AppID))
	switch {
	case !h.Sealed:
		now.addFlaw(nil, "its head is missing, or not as this platform sealed it")
	case h.Entries > v.seq:
		now.addFlaw(nil, "its last entries are missing: %d to %d", v.seq+1, h.Entries)
	case h.Entries < v.seq:
		now.addFlaw(nil, "there are entries behind its end, which is at %d", h.Entries)
	case h.Hash != now.Hash:
		now.addFlaw(nil, "its last entry is not the one that its head names")
	}
	v.closeChain()
}

func (v *Verifier) verifyEnd(e *ExportEnd) {
	v.closeWithoutHead()
	v.ended = true
	switch {
	case e.Part:
		v.trail.addFlaw(nil, "it holds only what was chosen by action, actor or time: that cannot be verified")
	case !e.Sealed:
		v.trail.addFlaw(nil, "the number of its chains is not as this platform sealed it")
	case e.Chains != v.chains:
		v.trail.addFlaw(nil, "there are %d chains and should be %d", v.chains, e.Chains)
	}
}

// Close returns what was found out about the trail as a whole; its entries are the chains.
func (v *Verifier) Close() VerifyResult {
	if v.closeWithoutHead(); !v.ended {
		v.trail.addFlaw(nil, "it has no end: it was cut off")
	}
	for _, hash := range v.RequiredHashes {
		v.trail.addFlaw(nil, "no entry has the hash %s", hash)
	}
	v.trail.Entries = v.chains
	return v.trail
}
