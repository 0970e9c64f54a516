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

// Page sends the requests of a page of the documentation and holds its answers to what comes back. Of its blocks of code,
// one of yaml is the configuration of the default app, each of http is a request, and the block after it its answer, of
// json (with its status, if that is not 200) or of text for a stream. One of websocket is a conversation: "> " before what is sent, "< " before
// what comes. An answer may leave members out; what it shows must be so. Identifiers and times are those of some other day.
func Page(t *testing.T, file string, routes func(h *House) []surface.Route) {
	src, err := os.ReadFile(file)
	must(t, err)
	p := &page{t: t, d: dialogue{bodies: map[string]string{}, ids: map[string]string{}}, real: map[string]string{}}
	var request string
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)(?: (\\d+))?\n(.*?)^```").FindAllStringSubmatch(string(src), -1) {
		kind, status, text := m[1], m[2], strings.TrimSpace(m[3])
		switch {
		case kind == "yaml":
			p.d.h = New(t, Options{Default: text}, routes)
		case kind == "http":
			request = text
			p.asked++
		case kind == "websocket":
			p.converse(text)
			p.asked++
		case request != "":
			p.answered(request, status, text)
			request = ""
		}
	}
	if p.asked < 5 {
		t.Errorf("%s shows %d requests", file, p.asked)
	}
}

type page struct {
	t     *testing.T
	d     dialogue
	asked int
	real  map[string]string // identifiers as they came, by those that the page shows
}

var identifiers = regexp.MustCompile(uuids.String() + "|" + calls.String())

// sent returns a request with the identifiers that came in the place of those that the page shows.
func (p *page) sent(text string) string {
	return identifiers.ReplaceAllStringFunc(text, func(id string) string {
		if got := p.real[id]; got != "" {
			return got
		}
		return id
	})
}

func (p *page) answered(request, status, shown string) {
	p.t.Helper()
	got := p.d.send(p.t, "page", p.sent(request))
	if !strings.HasPrefix(got, cmp.Or(status, "200")+" ") {
		p.t.Errorf("%s\nis answered %s", request, got)
		return
	}
	_, body, _ := strings.Cut(got, "\n\n")
	if strings.HasPrefix(shown, "{") {
		p.compare(request, []string{shown}, []string{body})
		return
	}
	p.compare(request, strings.Split(shown, "\n\n"), strings.Split(strings.TrimSpace(body), "\n\n"))
}

func (p *page) converse(text string) {
	p.t.Helper()
	head, talk, _ := strings.Cut(text, "\n\n")
	var said, shown []string
	for line := range strings.Lines(talk) {
		if mine, ok := strings.CutPrefix(line, "> "); ok {
			said = append(said, strings.TrimSpace(mine))
		} else if theirs, ok := strings.CutPrefix(line, "< "); ok {
			shown = append(shown, strings.TrimSpace(theirs))
		}
	}
	got := p.d.send(p.t, "page", p.sent(head+"\n\n"+strings.Join(said, "\n")))
	p.compare(head, shown, strings.Split(strings.TrimSpace(got), "\n"))
}

// compare holds events or bodies that the page shows to those that came, and learns which identifiers stand for which.
func (p *page) compare(request string, shown, came []string) {
	p.t.Helper()
	if len(shown) != len(came) {
		p.t.Errorf("%s\nis answered with %d pieces, the page shows %d:\n%s", request, len(came), len(shown), strings.Join(came, "\n\n"))
		return
	}
	for i := range shown {
		if !p.same(shown[i], came[i]) {
			p.t.Errorf("%s\nis answered\n%s\nand not\n%s", request, came[i], shown[i])
		}
	}
}

func (p *page) same(shown, came string) bool {
	head, data, isEvent := strings.Cut(shown, "data: ")
	gotHead, gotData, _ := strings.Cut(came, "data: ")
	if !isEvent {
		data, gotData = shown, came
	} else if head != gotHead {
		return false
	}
	var want, got any
	if json.Unmarshal([]byte(data), &want) != nil || json.Unmarshal([]byte(gotData), &got) != nil {
		return data == gotData
	}
	return p.holds(want, got)
}

// holds reports whether got is what the page shows, members left out aside.
func (p *page) holds(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for key, value := range want {
			if key == "timestamp" || key == "execution_time" || key == "request_id" || key == "nextPageToken" {
				if object[key] == nil {
					return false
				}
				continue
			}
			if member, there := object[key]; !there || !p.holds(value, member) {
				return false
			}
		}
		return object != nil
	case []any:
		list, _ := got.([]any)
		for i := range want {
			if len(list) != len(want) || !p.holds(want[i], list[i]) {
				return false
			}
		}
		return len(list) == len(want)
	case string:
		text, _ := got.(string)
		if identifiers.MatchString(want) && identifiers.FindString(want) == want && identifiers.MatchString(text) {
			if p.real[want] == "" {
				p.real[want] = text
			}
			return p.real[want] == text
		}
		return want == text
	}
	return reflect.DeepEqual(want, got)
}
