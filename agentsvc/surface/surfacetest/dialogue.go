package surfacetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"stoa/agentsvc/surface"
	"stoa/authz"
)

// update rewrites the recorded answers instead of comparing them.
var update = flag.Bool("update", false, "write the answers into testdata")

// RunDialogues replays every testdata/*.txtar as a subtest. A file holds a configuration, then requests and the
// answers that they must get:
//
//	-- default.yaml --        configuration of the default app, if there is to be one
//	-- apps/NAME.yaml --      configuration of another app
//	-- NAME.request --        method and path, headers, an empty line, the body
//	-- NAME.answer --         the expected answer; the flag -update writes it
//
// The method WEBSOCKET opens a connection and sends each line of the body after the one before has been answered;
// the answer is the frames received. The method CALL makes a call by [Fixture.CallMethod]; the answer is the
// messages received.
//
// "Authorization: app/sub [role=ROLE...] [scope]" stands for a new token of that app, "Authorization: admin" for
// the admin secret, any other value for itself. {{NAME.a.b}} stands for a value in the JSON of an earlier answer.
// What differs from run to run is replaced: identifiers by their order of appearance, times by TIME, months by
// MONTH.
func RunDialogues(t *testing.T, routes func(h *Fixture) []surface.Route) {
	files, err := filepath.Glob("testdata/*.txtar")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no dialogues")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			runDialogue(t, file, routes)
		})
	}
}

// runDialogue replays one file.
func runDialogue(t *testing.T, file string, routes func(h *Fixture) []surface.Route) {
	script, err := txtar.ParseFile(file)
	must(t, err)
	o := Options{Hosts: []string{"{app}.agents.test"}, Surface: surface.Options{PublicURL: "https://stoa.test:8443"}}
	for _, f := range script.Files {
		if f.Name == "default.yaml" {
			o.Default = string(f.Data)
		}
	}
	h := New(t, o, routes)
	d := &dialogue{fixture: h, bodies: map[string]string{}, ids: map[string]string{}}
	for i, f := range script.Files {
		if app, ok := strings.CutPrefix(f.Name, "apps/"); ok {
			h.CreateApp(t, strings.TrimSuffix(app, ".yaml"), string(f.Data))
		}
		name, ok := strings.CutSuffix(f.Name, ".request")
		if !ok {
			continue
		}
		got := d.sendNormalized(t, name, string(f.Data))
		if i+1 == len(script.Files) || script.Files[i+1].Name != name+".answer" {
			t.Fatalf("%s: %s has no answer file", file, f.Name)
		}
		want := &script.Files[i+1]
		if *update {
			want.Data = []byte(got)
		} else if diff := cmp.Diff(string(want.Data), got); diff != "" {
			t.Errorf("%s: the answer to %s differs (-want +got):\n%s", file, name, diff)
		}
	}
	if *update {
		must(t, os.WriteFile(file, txtar.Format(script), 0o644))
	}
}

// dialogue is the state of a replay.
type dialogue struct {
	fixture *Fixture
	bodies  map[string]string // answers so far, by name of the request; for {{NAME...}}
	ids     map[string]string // replacements of identifiers so far
}

// valueReference matches {{NAME.a.b}}.
var valueReference = regexp.MustCompile(`\{\{([a-z0-9_-]+)\.([A-Za-z0-9_.]+)\}\}`)

// sendNormalized sends a request and returns its answer with everything replaced that differs from run to run.
func (d *dialogue) sendNormalized(t *testing.T, name, request string) string {
	t.Helper()
	return d.normalizeAnswer(d.sendRequest(t, name, request))
}

// sendRequest sends a request of a dialogue and returns its answer as formatAnswer writes it.
func (d *dialogue) sendRequest(t *testing.T, name, request string) string {
	t.Helper()
	request = valueReference.ReplaceAllStringFunc(request, func(s string) string {
		m := valueReference.FindStringSubmatch(s)
		return d.lookupValue(t, m[1], m[2])
	})
	head, body, _ := strings.Cut(request, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	var credential string
	var headers []string
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if key == "Authorization" {
			credential = d.resolveCredential(t, value)
			continue
		}
		headers = append(headers, key, value)
	}
	var content any
	if body = strings.TrimSpace(body); body != "" {
		content = body
	}
	if method == "CALL" {
		if credential != "" {
			headers = append(headers, "authorization", "Bearer "+credential)
		}
		received := joinChunks(d.fixture.CallMethod(t, path, body, headers...))
		d.bodies[name] = received[0]
		return strings.Join(received, "\n") + "\n"
	}
	if method == "WEBSOCKET" {
		d.bodies[name] = d.fixture.exchangeFrames(t, path, credential, strings.Split(body, "\n"), headers...)
		return d.bodies[name]
	}
	resp, answer := d.fixture.Do(t, method, path, credential, content, headers...) //nolint:bodyclose // Do closes it
	d.bodies[name] = answer
	return formatAnswer(resp, answer)
}

// resolveCredential returns the credential that an Authorization line stands for.
func (d *dialogue) resolveCredential(t *testing.T, text string) string {
	t.Helper()
	if text == "admin" {
		return Secret
	}
	words := strings.Fields(text)
	app, sub, ok := strings.Cut(words[0], "/")
	if !ok {
		return text
	}
	spec := authz.TokenSpec{Subject: sub}
	var scopes []string
	for _, w := range words[1:] {
		if role, ok := strings.CutPrefix(w, "role="); ok {
			spec.Roles = append(spec.Roles, role)
			continue
		}
		scopes = append(scopes, w)
	}
	spec.Scope = strings.Join(scopes, " ")
	return d.fixture.MintToken(t, app, spec)
}

// lookupValue returns a value of an earlier answer, which is JSON or a stream; of a stream the first event counts.
// Numbers in path are indexes of lists.
func (d *dialogue) lookupValue(t *testing.T, name, path string) string {
	t.Helper()
	var v any
	body := d.bodies[name]
	if data := regexp.MustCompile(`(?m)^data: (.*)$`).FindStringSubmatch(body); data != nil {
		body = data[1]
	}
	must(t, json.Unmarshal([]byte(body), &v))
	for key := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			i, err := strconv.Atoi(key)
			must(t, err)
			v = at[i]
		default:
			t.Fatalf("%s has no %s", name, path)
		}
	}
	return fmt.Sprint(v)
}

// shownHeaders are the response headers that answers record.
var shownHeaders = []string{"Content-Type", "WWW-Authenticate", "Retry-After", "Allow", "Location", "Etag", "Vary", "Cache-Control", "Idempotent-Replayed"}

// formatAnswer returns an answer as dialogues record it: status, the headers of shownHeaders, the body. JSON is
// indented, and the deltas of a stream that follow each other are joined.
func formatAnswer(resp *http.Response, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", resp.Status)
	for _, key := range shownHeaders {
		for _, value := range resp.Header.Values(key) {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	if body == "" {
		return b.String()
	}
	b.WriteString("\n")
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b.WriteString(joinStream(body))
		return b.String()
	}
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(body), "", "  ") != nil {
		return b.String() + body + "\n"
	}
	return b.String() + strings.TrimRight(indented.String(), "\n") + "\n"
}

// joinStream joins the deltas of a stream and numbers its events again. How a text is cut into deltas depends on timing,
// so recorded streams must not.
func joinStream(stream string) string {
	events := joinChunks(strings.Split(strings.TrimRight(stream, "\n"), "\n\n"))
	for i := range events {
		events[i] = sequencePattern.ReplaceAllString(events[i], fmt.Sprintf(`"sequence_number":%d`, i))
	}
	return strings.Join(events, "\n\n") + "\n"
}

// joinChunks joins consecutive events that carry text of the same message into the first of them.
func joinChunks(events []string) (out []string) {
	last := ""
	for _, event := range events {
		of, text := parseChunk(event)
		if of == "" || of != last {
			out, last = append(out, event), of
			continue
		}
		before := out[len(out)-1]
		// Insert before the end of the text: a part of A2A, or the delta of a completion or of a response.
		at := max(strings.LastIndex(before, `"}]`), strings.LastIndex(before, `"},"logprobs"`), strings.LastIndex(before, `","logprobs":[]}`))
		quoted, _ := json.Marshal(text)
		out[len(out)-1] = before[:at] + string(quoted[1:len(quoted)-1]) + before[at:]
	}
	return out
}

// official is the part of an official A2A event, of either version, that parseChunk reads.
type (
	official struct {
		Status       officialStatus
		StatusUpdate struct{ Status officialStatus }
	}
	officialStatus  struct{ Message officialMessage }
	officialMessage struct {
		ID             string `json:"messageId"`
		Parts, Content []struct{ Text string }
		Metadata       any // deltas have none
	}
)

// parseChunk returns the message that an event carries new text of, and that text; "" for an event that is no
// delta. It knows the shapes of all surfaces.
func parseChunk(event string) (of, text string) {
	type parts []struct{ Text string }
	var u struct {
		Status struct {
			Message struct {
				ID    string `json:"message_id"`
				Parts parts
			}
		}
		Msg struct {
			ID    string `json:"messageId"`
			Parts parts
		}
		Response struct{ Content parts }
		Task     struct{ ID string }
		ID       any // of a completion or of a JSON-RPC request
		Choices  []struct{ Delta struct{ Content string } }
		EventID  int64  `json:"eventId"`
		ItemID   string `json:"item_id"` // of a response
		Delta    string
		official
		Result official
	}
	// A fact has an id, and then is no delta.
	data := strings.TrimPrefix(eventNamePattern.ReplaceAllString(event, ""), "data: ")
	if json.Unmarshal([]byte(data), &u) != nil || u.EventID > 0 {
		return "", ""
	}
	for _, o := range []official{u.official, u.Result} {
		for _, m := range []officialMessage{o.Status.Message, o.StatusUpdate.Status.Message} {
			for _, sent := range slices.Concat(m.Parts, m.Content) {
				if m.Metadata == nil {
					return m.ID, sent.Text
				}
			}
		}
	}
	switch m := u.Status.Message; {
	case len(m.Parts) > 0:
		return m.ID, m.Parts[0].Text
	case len(u.Msg.Parts) > 0:
		return u.Msg.ID, u.Msg.Parts[0].Text
	case len(u.Response.Content) > 0:
		return u.Task.ID, u.Response.Content[0].Text
	case u.Delta != "":
		return u.ItemID, u.Delta
	case len(u.Choices) > 0 && u.Choices[0].Delta.Content != "":
		return fmt.Sprint(u.ID), u.Choices[0].Delta.Content
	}
	return "", ""
}

// Patterns of values that differ from run to run.
var (
	uuidPattern          = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern          = regexp.MustCompile(`"20\d\d-[^"]*Z"`)
	executionTimePattern = regexp.MustCompile(`"execution_time": ?[0-9.e-]+`)
	unixTimePattern      = regexp.MustCompile(`"(created|created_at)": ?[1-9][0-9]{9}`)
	callIDPattern        = regexp.MustCompile(`call_[0-9a-f]{24}`)
	hashPattern          = regexp.MustCompile(`"(hash|prev)": ?"[0-9a-f]{64}"`)
	keyedHashPattern     = regexp.MustCompile(`"hmac-sha256:[0-9a-f]{32}"`) // the key is new in each run
	runSecondsPattern    = regexp.MustCompile(`"run_seconds": ?[0-9.e-]+`)
	eventNamePattern     = regexp.MustCompile(`^event: [a-z._]+\n`)
	sequencePattern      = regexp.MustCompile(`"sequence_number":\d+`)
	monthPattern         = regexp.MustCompile(`\b20\d\d-\d\d((-reversal|-[2-9])?[": ])`)
	monthEndPattern      = regexp.MustCompile(`\b20\d\d-\d\d-01T00:00:00Z`)
	loadTimePattern      = regexp.MustCompile(`"(\d+)\.[0-9a-f]{14,16}`) // in the ETag of the default app
	tokenPattern         = regexp.MustCompile(`"(access_token|page_token|next_page_token|nextPageToken)": ?"[^"]+"`)
)

// normalizeAnswer replaces what differs from run to run. The same identifier always gets the same replacement, so
// that answers still show which identifiers are equal.
func (d *dialogue) normalizeAnswer(answer string) string {
	answer = loadTimePattern.ReplaceAllString(answer, `"$1.LOADED`)
	answer = regexp.MustCompile(`"request_id": ?"[^"]*"`).ReplaceAllString(answer, `"request_id": "REQUEST"`)
	answer = hashPattern.ReplaceAllString(answer, `"$1": "HASH"`)
	answer = keyedHashPattern.ReplaceAllString(answer, `"hmac-sha256:HASH"`)
	answer = uuidPattern.ReplaceAllStringFunc(answer, func(id string) string {
		if d.ids[id] == "" {
			d.ids[id] = fmt.Sprintf("ID%d", len(d.ids)+1)
		}
		return d.ids[id]
	})
	answer = monthPattern.ReplaceAllString(answer, `MONTH$1`)
	answer = monthEndPattern.ReplaceAllString(answer, `MONTH-END`)
	answer = runSecondsPattern.ReplaceAllString(answer, `"run_seconds": SECONDS`)
	answer = callIDPattern.ReplaceAllString(answer, "CALL")
	answer = executionTimePattern.ReplaceAllString(answer, `"execution_time": SECONDS`)
	answer = unixTimePattern.ReplaceAllString(answer, `"$1": UNIX`)
	answer = tokenPattern.ReplaceAllString(answer, `"$1": "TOKEN"`)
	return timePattern.ReplaceAllStringFunc(answer, func(at string) string {
		// Only this form is replaced, so that a time in another form shows up as a difference. A2A 0.3 may leave
		// trailing zeros out, as its library does.
		if _, err := time.Parse(`"2006-01-02T15:04:05.999Z"`, at); err != nil || len(at) > len(`"2006-01-02T15:04:05.000Z"`) {
			return at
		}
		return `"TIME"`
	})
}

// Event is a server-sent event.
type Event struct {
	Name string
	ID   string
	Data map[string]any // decoded data, nil if it is no JSON object
	Text string         // the data as text
}

// ReadEvents returns a function that reads the next event of a stream; it returns false at the stream's end.
// Comments are skipped.
func ReadEvents(t testing.TB, resp *http.Response) func() (Event, bool) {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func() (Event, bool) {
		var ev Event
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case field == "id":
				ev.ID = value
			case field == "event":
				ev.Name = value
			case field == "data":
				ev.Text = value
				_ = json.Unmarshal([]byte(value), &ev.Data)
			case lines.Text() == "" && ev.Text != "":
				return ev, true
			}
		}
		return Event{}, false
	}
}
