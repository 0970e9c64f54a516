package surfacetest

import (
	"cmp"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"stoa/agentsvc/surface"
)

// CheckPage sends the requests of a documentation page and compares the answers with those on the page, so that
// examples stay correct. Its code blocks are: yaml, the configuration of the default app; http, a request; then its
// answer as json (with the status if it is not 200) or as text for a stream; websocket, a conversation with "> "
// before what is sent and "< " before what is received. An answer on the page may leave members out; those that it
// shows must be equal. Identifiers and times may differ, but the same identifier must stand for the same one
// everywhere on the page.
func CheckPage(t *testing.T, file string, routes func(h *Fixture) []surface.Route) {
	src, err := os.ReadFile(file)
	must(t, err)
	p := &docPage{t: t, dialogue: dialogue{bodies: map[string]string{}, ids: map[string]string{}}, actualIDs: map[string]string{}}
	var request string
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)(?: (\\d+))?\n(.*?)^```").FindAllStringSubmatch(string(src), -1) {
		kind, status, text := m[1], m[2], strings.TrimSpace(m[3])
		switch {
		case kind == "yaml":
			p.dialogue.fixture = New(t, Options{Default: text}, routes)
		case kind == "http":
			request = text
			p.requests++
		case kind == "websocket":
			p.checkConversation(text)
			p.requests++
		case request != "":
			p.checkAnswer(request, status, text)
			request = ""
		}
	}
	// A page with fewer requests was probably not parsed as intended.
	if p.requests < 5 {
		t.Errorf("%s shows %d requests", file, p.requests)
	}
}

// docPage is the state of checking one page.
type docPage struct {
	t         *testing.T
	dialogue  dialogue
	requests  int               // requests and conversations sent
	actualIDs map[string]string // received identifiers, by those on the page
}

var identifierPattern = regexp.MustCompile(uuidPattern.String() + "|" + callIDPattern.String())

// substituteIDs replaces the identifiers of the page in a request by those received.
func (p *docPage) substituteIDs(text string) string {
	return identifierPattern.ReplaceAllStringFunc(text, func(id string) string {
		if got := p.actualIDs[id]; got != "" {
			return got
		}
		return id
	})
}

// checkAnswer sends a request and compares its answer; status is "" for 200.
func (p *docPage) checkAnswer(request, status, expected string) {
	p.t.Helper()
	got := p.dialogue.sendRequest(p.t, "page", p.substituteIDs(request))
	if !strings.HasPrefix(got, cmp.Or(status, "200")+" ") {
		p.t.Errorf("%s\nis answered %s", request, got)
		return
	}
	_, body, _ := strings.Cut(got, "\n\n")
	if strings.HasPrefix(expected, "{") {
		p.comparePieces(request, []string{expected}, []string{body})
		return
	}
	p.comparePieces(request, strings.Split(expected, "\n\n"), strings.Split(strings.TrimSpace(body), "\n\n"))
}

// checkConversation plays a WebSocket conversation.
func (p *docPage) checkConversation(text string) {
	p.t.Helper()
	head, conversation, _ := strings.Cut(text, "\n\n")
	var sent, expected []string
	for line := range strings.Lines(conversation) {
		if mine, ok := strings.CutPrefix(line, "> "); ok {
			sent = append(sent, strings.TrimSpace(mine))
		} else if theirs, ok := strings.CutPrefix(line, "< "); ok {
			expected = append(expected, strings.TrimSpace(theirs))
		}
	}
	got := p.dialogue.sendRequest(p.t, "page", p.substituteIDs(head+"\n\n"+strings.Join(sent, "\n")))
	p.comparePieces(head, expected, strings.Split(strings.TrimSpace(got), "\n"))
}

// comparePieces compares events or bodies in order, and learns which received identifier an identifier of the page
// stands for.
func (p *docPage) comparePieces(request string, expected, actual []string) {
	p.t.Helper()
	if len(expected) != len(actual) {
		p.t.Errorf("%s\nis answered with %d pieces, the page shows %d:\n%s", request, len(actual), len(expected), strings.Join(actual, "\n\n"))
		return
	}
	for i := range expected {
		if !p.isSame(expected[i], actual[i]) {
			p.t.Errorf("%s\nis answered\n%s\nand not\n%s", request, actual[i], expected[i])
		}
	}
}

// isSame compares one event or body. What precedes the data of an event (its name and ID) must be equal.
func (p *docPage) isSame(expected, actual string) bool {
	head, data, isEvent := strings.Cut(expected, "data: ")
	gotHead, gotData, _ := strings.Cut(actual, "data: ")
	if !isEvent {
		data, gotData = expected, actual
	} else if head != gotHead {
		return false
	}
	var want, got any
	if json.Unmarshal([]byte(data), &want) != nil || json.Unmarshal([]byte(gotData), &got) != nil {
		return data == gotData
	}
	return p.matchesValue(want, got)
}

// matchesValue reports whether got has everything that want shows; members that want leaves out may be present.
func (p *docPage) matchesValue(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for key, value := range want {
			// Values that differ from run to run must only be present.
			if key == "timestamp" || key == "execution_time" || key == "request_id" || key == "nextPageToken" {
				if object[key] == nil {
					return false
				}
				continue
			}
			if member, there := object[key]; !there || !p.matchesValue(value, member) {
				return false
			}
		}
		return object != nil
	case []any:
		list, _ := got.([]any)
		for i := range want {
			if len(list) != len(want) || !p.matchesValue(want[i], list[i]) {
				return false
			}
		}
		return len(list) == len(want)
	case string:
		text, _ := got.(string)
		return p.matchesText(want, text)
	}
	return reflect.DeepEqual(want, got)
}

// matchesText reports whether got is want, and learns which received identifiers those in want stand for.
func (p *docPage) matchesText(want, got string) bool {
	onPage, received := identifierPattern.FindAllString(want, -1), identifierPattern.FindAllString(got, -1)
	if len(onPage) != len(received) || identifierPattern.ReplaceAllString(want, "") != identifierPattern.ReplaceAllString(got, "") {
		return false
	}
	for i, id := range onPage {
		if p.actualIDs[id] == "" {
			p.actualIDs[id] = received[i]
		}
		if p.actualIDs[id] != received[i] {
			return false
		}
	}
	return true
}
