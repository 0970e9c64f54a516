package tenancy

import (
	"fmt"
	"slices"
)

// maxFlaws bounds how many flaws of one chain are told.
const maxFlaws = 100

// Flaw is a place where a chain is not as it was made.
type Flaw struct {
	Seq  int64  // of the entry there; 0 = it is about the chain as a whole
	ID   string // of that entry
	Text string // what is wrong
}

// Verdict is what was found out about one chain.
type Verdict struct {
	App     string // name of the app in its last entry; "" = the platform's own chain, or the trail as a whole
	AppID   string
	Entries int64
	Hash    string // of the last entry
	Flaws   []Flaw
	More    int64 // flaws that are not told
}

func (v *Verdict) flaw(e *Entry, format string, args ...any) {
	if len(v.Flaws) >= maxFlaws {
		v.More++
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
	// Contains are hashes of entries that must be there: heads of earlier verifications, of which the platform keeps nothing.
	Contains []string
	// Report is told what was found out about a chain when its last line has come.
	Report func(Verdict)

	now    *Verdict // of the chain whose lines come
	seq    int64    // of its last entry
	chains int64
	ended  bool
	trail  Verdict
}

// Line looks at the next line.
func (v *Verifier) Line(l Line) {
	switch {
	case v.ended:
		v.trail.flaw(nil, "there are lines behind its end")
	case l.Entry != nil:
		v.entry(l.Entry)
	case l.Head != nil:
		v.head(l.Head)
	case l.End != nil:
		v.end(l.End)
	}
}

// chain begins with the lines of a chain, unless it has.
func (v *Verifier) chain(app string) *Verdict {
	if v.now != nil && v.now.AppID != app {
		v.headless()
	}
	if v.now == nil {
		v.now, v.seq = &Verdict{AppID: app}, 0
	}
	return v.now
}

// headless ends a chain whose head has not come.
func (v *Verifier) headless() {
	if v.now != nil {
		v.now.flaw(nil, "its head is missing")
		v.close()
	}
}

func (v *Verifier) close() {
	v.chains++
	v.Report(*v.now)
	v.now = nil
}

func (v *Verifier) entry(e *Entry) {
	now := v.chain(string(e.AppID))
	switch missing := e.Seq - v.seq - 1; {
	case missing == 1:
		now.flaw(e, "the entry before it is missing")
	case missing > 0:
		now.flaw(e, "%d entries before it are missing", missing)
	case missing < 0:
		now.flaw(e, "its number was there before")
	case e.Prev != now.Hash:
		now.flaw(e, "it does not follow from the entry before it: one was inserted, moved or replaced")
	}
	if hash, err := e.Digest(e.Prev); err != nil || hash != e.Hash {
		now.flaw(e, "it was changed: its hash was made of something else")
	}
	v.seq = e.Seq
	now.App, now.Hash, now.Entries = e.App, e.Hash, now.Entries+1
	v.Contains = slices.DeleteFunc(v.Contains, func(hash string) bool { return hash == e.Hash })
}

func (v *Verifier) head(h *Head) {
	now := v.chain(string(h.AppID))
	switch {
	case !h.Sealed:
		now.flaw(nil, "its head is missing, or not as this platform sealed it")
	case h.Entries > v.seq:
		now.flaw(nil, "its last entries are missing: %d to %d", v.seq+1, h.Entries)
	case h.Entries < v.seq:
		now.flaw(nil, "there are entries behind its end, which is at %d", h.Entries)
	case h.Hash != now.Hash:
		now.flaw(nil, "its last entry is not the one that its head names")
	}
	v.close()
}

func (v *Verifier) end(e *End) {
	v.headless()
	v.ended = true
	switch {
	case e.Part:
		v.trail.flaw(nil, "it holds only what was chosen by action, actor or time: that cannot be verified")
	case !e.Sealed:
		v.trail.flaw(nil, "the number of its chains is not as this platform sealed it")
	case e.Chains != v.chains:
		v.trail.flaw(nil, "there are %d chains and should be %d", v.chains, e.Chains)
	}
}

// Close returns what was found out about the trail as a whole; its entries are the chains.
func (v *Verifier) Close() Verdict {
	if v.headless(); !v.ended {
		v.trail.flaw(nil, "it has no end: it was cut off")
	}
	for _, hash := range v.Contains {
		v.trail.flaw(nil, "no entry has the hash %s", hash)
	}
	v.trail.Entries = v.chains
	return v.trail
}
