package signal

import "encoding/json"

const (
	// maxPending bounds the signals that wait to be sent to one address; beyond it they become one "look at everything".
	maxPending = 10_000
	// maxData bounds the data that waits to be sent to one process, in bytes; beyond it data is dropped.
	maxData = 1 << 20
)

// mail is what waits to be sent to one process, or to all.
type mail struct {
	hello   bool // the sender has just come, or come back: whoever follows something is to say so
	signals set
	told    set // of keys that the receiver follows
	follows set // the sender follows
	leaves  set // the sender does not follow
	data    [][3]string
	bytes   int // of data
}

type set map[Signal]struct{}

// put adds to a set what there is room for.
func (s *set) put(v Signal, room int) bool {
	if *s == nil {
		*s = set{}
	}
	if len(*s) >= room {
		return false
	}
	(*s)[v] = struct{}{}
	return true
}

func (m *mail) signal(s Signal) {
	if !m.signals.put(s, maxPending) {
		m.all()
	}
}

func (m *mail) tell(s Signal) {
	if !m.told.put(s, maxPending) {
		m.all()
	}
}

func (m *mail) all() {
	m.told, m.signals = nil, set{Signal{}: {}}
}

func (m *mail) follow(s Signal) { m.follows.put(s, maxFollowers) }
func (m *mail) leave(s Signal)  { m.leaves.put(s, maxPending) }

func (m *mail) send(s Signal, data string) {
	if m.bytes+len(data) > maxData {
		return
	}
	m.bytes += len(data)
	m.data = append(m.data, [3]string{s.Topic, s.Key, data})
}

// message is what travels: who says it, and pairs of topic and key, or topic, key and data.
type message struct {
	From    string      `json:"from"`
	Hello   bool        `json:"hello,omitempty"`
	Follow  [][2]string `json:"follow,omitempty"`
	Leave   [][2]string `json:"leave,omitempty"`
	Signals [][2]string `json:"signals,omitempty"`
	Told    [][2]string `json:"told,omitempty"`
	Data    [][3]string `json:"data,omitempty"`
}

// envelope is the room that a message takes beside its entries, in bytes.
const envelope = 200

// texts packs the mail into messages of at most limit bytes. Follows come first: whoever is woken by what comes with
// them knows of them. What fits nowhere becomes "look at all of the topic", or of everything.
func (m *mail) texts(from string, limit int) []string {
	w := writer{from: from, limit: limit, next: message{From: from, Hello: m.hello}, size: envelope}
	for s := range m.follows {
		w.pair(s, func(n *message) *[][2]string { return &n.Follow })
	}
	for s := range m.leaves {
		w.pair(s, func(n *message) *[][2]string { return &n.Leave })
	}
	for s := range m.signals {
		w.pair(w.fit(s), func(n *message) *[][2]string { return &n.Signals })
	}
	for s := range m.told {
		w.pair(s, func(n *message) *[][2]string { return &n.Told })
	}
	for _, d := range m.data {
		w.room(encodedLen(d))
		w.next.Data = append(w.next.Data, d)
	}
	if w.size > envelope || m.hello {
		w.flush()
	}
	return w.done
}

type writer struct {
	from  string
	limit int
	next  message
	size  int
	done  []string
}

func (w *writer) fit(s Signal) Signal {
	if w.fits(s) {
		return s
	}
	if s.Key = ""; w.fits(s) {
		return s
	}
	return Signal{}
}

func (w *writer) fits(s Signal) bool {
	return envelope+encodedLen([2]string{s.Topic, s.Key}) <= w.limit
}

// pair adds s to a list of the next message, if any message can hold it.
func (w *writer) pair(s Signal, list func(*message) *[][2]string) {
	if !w.fits(s) {
		return
	}
	p := [2]string{s.Topic, s.Key}
	w.room(encodedLen(p))
	to := list(&w.next)
	*to = append(*to, p)
}

// room makes room for n bytes.
func (w *writer) room(n int) {
	if w.size > envelope && w.size+n > w.limit {
		w.flush()
	}
	w.size += n
}

func (w *writer) flush() {
	text, _ := json.Marshal(w.next) // strings always marshal
	w.done = append(w.done, string(text))
	w.next, w.size = message{From: w.from}, envelope
}

func encodedLen(v any) int {
	text, _ := json.Marshal(v)
	return len(text) + 1
}
