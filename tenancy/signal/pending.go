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
func (m *pendingSignals) addSignal(s Signal) {
	if !m.signals.addUpTo(s, maxPending) {
		m.replaceWithAll()
	}
}

func (m *pendingSignals) addFollowed(s Signal) {
	if !m.followed.addUpTo(s, maxPending) {
		m.replaceWithAll()
	}
}

// replaceWithAll replaces the pending signals by one for everything, which is always correct.
func (m *pendingSignals) replaceWithAll() {
	m.followed, m.signals = nil, signalSet{Signal{}: {}}
}

func (m *pendingSignals) addFollow(s Signal)   { m.follows.addUpTo(s, maxFollowers) }
func (m *pendingSignals) addUnfollow(s Signal) { m.unfollows.addUpTo(s, maxPending) }

// addData appends data, or drops it beyond maxData: unlike a signal it cannot be merged, and its loss is allowed.
func (m *pendingSignals) addData(s Signal, data string) {
	if m.dataBytes+len(data) > maxData {
		return
	}
	m.dataBytes += len(data)
	m.data = append(m.data, [3]string{s.Topic, s.Key, data})
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
func (m *pendingSignals) encodeMessages(from string, limit int) []string {
	w := messageEncoder{from: from, limit: limit, next: message{From: from, Hello: m.hello}, size: messageOverhead}
	for s := range m.follows {
		w.addPair(s, func(n *message) *[][2]string { return &n.Follow })
	}
	for s := range m.unfollows {
		w.addPair(s, func(n *message) *[][2]string { return &n.Unfollow })
	}
	for s := range m.signals {
		w.addPair(w.shortenToFit(s), func(n *message) *[][2]string { return &n.Signals })
	}
	for s := range m.followed {
		w.addPair(s, func(n *message) *[][2]string { return &n.Followed })
	}
	for _, d := range m.data {
		w.ensureSpace(encodedLen(d))
		w.next.Data = append(w.next.Data, d)
	}
	if w.size > messageOverhead || m.hello {
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
func (w *messageEncoder) shortenToFit(s Signal) Signal {
	if w.canFit(s) {
		return s
	}
	if s.Key = ""; w.canFit(s) {
		return s
	}
	return Signal{}
}

// canFit reports whether a message can hold s.
func (w *messageEncoder) canFit(s Signal) bool {
	return messageOverhead+encodedLen([2]string{s.Topic, s.Key}) <= w.limit
}

// addPair adds s to a list of the next message. A signal that no message can hold is left out.
func (w *messageEncoder) addPair(s Signal, list func(*message) *[][2]string) {
	if !w.canFit(s) {
		return
	}
	p := [2]string{s.Topic, s.Key}
	w.ensureSpace(encodedLen(p))
	to := list(&w.next)
	*to = append(*to, p)
}

// ensureSpace reserves n bytes, in a new message if the present one would become too long.
func (w *messageEncoder) ensureSpace(n int) {
	if w.size > messageOverhead && w.size+n > w.limit {
		w.finishMessage()
	}
	w.size += n
}

func (w *messageEncoder) finishMessage() {
	text, _ := json.Marshal(w.next) // cannot fail: the message consists of strings
	w.messages = append(w.messages, string(text))
	w.next, w.size = message{From: w.from}, messageOverhead
}

// encodedLen returns the length of v in JSON with the comma after it.
func encodedLen(v any) int {
	text, _ := json.Marshal(v)
	return len(text) + 1
}
