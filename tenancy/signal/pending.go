package signal

import "encoding/json"

const (
	// maxPending bounds the signals that wait to be sent to one address; beyond it they become one "look at everything".
	maxPending = 10_000
	// maxData bounds the data that waits to be sent to one process, in bytes; beyond it data is dropped.
	maxData = 1 << 20
)

// pendingSignals is what waits to be sent to one process, or to all.
type pendingSignals struct {
	hello     bool // the sender has just come, or come back: whoever follows something is to say so
	signals   signalSet
	followed  signalSet // of keys that the receiver follows
	follows   signalSet // the sender follows
	unfollows signalSet // the sender does not follow
	data      [][3]string
	dataBytes int // of data
}

type signalSet map[Signal]struct{}

// addUpTo adds to a set what there is room for.
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

func (m *pendingSignals) replaceWithAll() {
	m.followed, m.signals = nil, signalSet{Signal{}: {}}
}

func (m *pendingSignals) addFollow(s Signal)   { m.follows.addUpTo(s, maxFollowers) }
func (m *pendingSignals) addUnfollow(s Signal) { m.unfollows.addUpTo(s, maxPending) }

func (m *pendingSignals) addData(s Signal, data string) {
	if m.dataBytes+len(data) > maxData {
		return
	}
	m.dataBytes += len(data)
	m.data = append(m.data, [3]string{s.Topic, s.Key, data})
}

// message is what travels: who says it, and pairs of topic and key, or topic, key and data.
type message struct {
	From     string      `json:"from"`
	Hello    bool        `json:"hello,omitempty"`
	Follow   [][2]string `json:"follow,omitempty"`
	Unfollow [][2]string `json:"leave,omitempty"`
	Signals  [][2]string `json:"signals,omitempty"`
	Followed [][2]string `json:"told,omitempty"`
	Data     [][3]string `json:"data,omitempty"`
}

// messageOverhead is the room that a message takes beside its entries, in bytes.
const messageOverhead = 200

// encodeMessages packs the mail into messages of at most limit bytes. Follows come first: whoever is woken by what comes with
// them knows of them. What fits nowhere becomes "look at all of the topic", or of everything.
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

type messageEncoder struct {
	from     string
	limit    int
	next     message
	size     int
	messages []string
}

func (w *messageEncoder) shortenToFit(s Signal) Signal {
	if w.canFit(s) {
		return s
	}
	if s.Key = ""; w.canFit(s) {
		return s
	}
	return Signal{}
}

func (w *messageEncoder) canFit(s Signal) bool {
	return messageOverhead+encodedLen([2]string{s.Topic, s.Key}) <= w.limit
}

// addPair adds s to a list of the next message, if any message can hold it.
func (w *messageEncoder) addPair(s Signal, list func(*message) *[][2]string) {
	if !w.canFit(s) {
		return
	}
	p := [2]string{s.Topic, s.Key}
	w.ensureSpace(encodedLen(p))
	to := list(&w.next)
	*to = append(*to, p)
}

// ensureSpace makes room for n bytes.
func (w *messageEncoder) ensureSpace(n int) {
	if w.size > messageOverhead && w.size+n > w.limit {
		w.finishMessage()
	}
	w.size += n
}

func (w *messageEncoder) finishMessage() {
	text, _ := json.Marshal(w.next) // strings always marshal
	w.messages = append(w.messages, string(text))
	w.next, w.size = message{From: w.from}, messageOverhead
}

func encodedLen(v any) int {
	text, _ := json.Marshal(v)
	return len(text) + 1
}
