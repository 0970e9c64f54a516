package signal

import "encoding/json"

const (
	// maxPending bounds the signals that are pending for one process; beyond it they are replaced by one for
	// everything.
	maxPending = 10_000
	// maxData bounds the data that is pending for one process, in bytes; beyond it data is dropped.
	maxData = 1 << 20
)

// pendingSignals is what is to be sent to one process, or to all. Equal signals are merged, since a receiver reads the
// current state anyway. It is guarded by the queue's mu until drainPending takes it.
type pendingSignals struct {
	// hello asks the receivers to announce the keys that they follow: the sender has just connected.
	hello   bool
	signals signalSet
	// followed are changed keys that the receiver follows.
	followed signalSet
	// follows are keys that the sender follows, unfollows keys that it does not follow.
	follows   signalSet
	unfollows signalSet
	// data has triples of topic, key and data, in order.
	data      [][3]string
	dataBytes int
}

// signalSet is a set of signals; nil is empty.
type signalSet map[Signal]struct{}

// addUpTo adds v unless the set has limit elements, and reports whether it did.
func (s *signalSet) addUpTo(v Signal, limit int) bool {
	if *s == nil {
		*s = signalSet{}
	}
	if len(*s) >= limit {
		return false
	}
	(*s)[v] = struct{}{}
	return true
}

// addSignal and the other add methods merge one entry into what is pending, within its bound.
func (p *pendingSignals) addSignal(s Signal) {
	if !p.signals.addUpTo(s, maxPending) {
		p.replaceWithAll()
	}
}

func (p *pendingSignals) addFollowed(s Signal) {
	if !p.followed.addUpTo(s, maxPending) {
		p.replaceWithAll()
	}
}

// replaceWithAll replaces the pending signals by one for everything, which is always correct.
func (p *pendingSignals) replaceWithAll() {
	p.followed, p.signals = nil, signalSet{Signal{}: {}}
}

func (p *pendingSignals) addFollow(s Signal)   { p.follows.addUpTo(s, maxFollowers) }
func (p *pendingSignals) addUnfollow(s Signal) { p.unfollows.addUpTo(s, maxPending) }

// addData appends data, or drops it beyond maxData: unlike a signal it cannot be merged, and its loss is allowed.
func (p *pendingSignals) addData(s Signal, data string) {
	if p.dataBytes+len(data) > maxData {
		return
	}
	p.dataBytes += len(data)
	p.data = append(p.data, [3]string{s.Topic, s.Key, data})
}

// message is the JSON text that processes exchange. From is the sender's id; signals are pairs of topic and key, data
// are triples of topic, key and data. The JSON names must stay, since processes of two versions run together during an
// update.
type message struct {
	From     string      `json:"from"`
	Hello    bool        `json:"hello,omitempty"`
	Follow   [][2]string `json:"follow,omitempty"`
	Unfollow [][2]string `json:"leave,omitempty"`
	Signals  [][2]string `json:"signals,omitempty"`
	Followed [][2]string `json:"told,omitempty"`
	Data     [][3]string `json:"data,omitempty"`
}

// messageOverhead is an upper bound of a message's size without its entries, in bytes.
const messageOverhead = 200

// encodeMessages packs the pending signals into messages of at most limit bytes. Follows come first, so that the
// receiver knows the followers before it handles the signals. A signal that is too long for a message becomes one for
// its topic, or for everything.
func (p *pendingSignals) encodeMessages(from string, limit int) []string {
	w := messageEncoder{from: from, limit: limit, next: message{From: from, Hello: p.hello}, size: messageOverhead}
	for s := range p.follows {
		w.addPair(s, func(n *message) *[][2]string { return &n.Follow })
	}
	for s := range p.unfollows {
		w.addPair(s, func(n *message) *[][2]string { return &n.Unfollow })
	}
	for s := range p.signals {
		w.addPair(w.shortenToFit(s), func(n *message) *[][2]string { return &n.Signals })
	}
	for s := range p.followed {
		w.addPair(s, func(n *message) *[][2]string { return &n.Followed })
	}
	for _, d := range p.data {
		w.ensureSpace(encodedLen(d))
		w.next.Data = append(w.next.Data, d)
	}
	if w.size > messageOverhead || p.hello {
		w.finishMessage()
	}
	return w.messages
}

// messageEncoder collects entries in next and completes it when size, an estimate from above, would exceed limit.
type messageEncoder struct {
	from     string
	limit    int
	next     message
	size     int
	messages []string
}

// shortenToFit returns s, or a more general signal that fits into a message.
func (e *messageEncoder) shortenToFit(s Signal) Signal {
	if e.canFit(s) {
		return s
	}
	if s.Key = ""; e.canFit(s) {
		return s
	}
	return Signal{}
}

// canFit reports whether a message can hold s.
func (e *messageEncoder) canFit(s Signal) bool {
	return messageOverhead+encodedLen([2]string{s.Topic, s.Key}) <= e.limit
}

// addPair adds s to a list of the next message. A signal that no message can hold is left out.
func (e *messageEncoder) addPair(s Signal, list func(*message) *[][2]string) {
	if !e.canFit(s) {
		return
	}
	p := [2]string{s.Topic, s.Key}
	e.ensureSpace(encodedLen(p))
	to := list(&e.next)
	*to = append(*to, p)
}

// ensureSpace reserves n bytes, in a new message if the present one would become too long.
func (e *messageEncoder) ensureSpace(n int) {
	if e.size > messageOverhead && e.size+n > e.limit {
		e.finishMessage()
	}
	e.size += n
}

func (e *messageEncoder) finishMessage() {
	text, _ := json.Marshal(e.next) // cannot fail: the message consists of strings
	e.messages = append(e.messages, string(text))
	e.next, e.size = message{From: e.from}, messageOverhead
}

// encodedLen returns the length of v in JSON with the comma after it.
func encodedLen(v any) int {
	text, _ := json.Marshal(v)
	return len(text) + 1
}
