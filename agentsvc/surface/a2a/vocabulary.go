package a2a

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2apb/v0/pbjson"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// vocabulary is how a version of the protocol says things, in one of its bindings.
type vocabulary struct {
	version  string
	contents string // what a part may have one of
	file     string // what a file has either of
	twice    bool   // clients encode the bytes of files twice
	kind     string // the media type of answers over REST

	data  func(raw json.RawMessage, at string) (spec.PartContent, error)
	sent  func(spec.SendMessageResult) (any, error) // what a message is answered with
	task  func(*spec.Task) (any, error)
	list  func(*spec.ListTasksResponse) (any, error)
	event func(ev spec.Event, final bool) (any, error)

	push   func(*spec.PushConfig) (any, error)
	pushes func([]*spec.PushConfig) (any, error)
	empty  any // what a call is answered with that has no answer, nil over REST: an empty body
}

// v10 is version 1.0, in which both bindings say the same.
var v10 = vocabulary{
	version: surface.A2A10, contents: "text, raw, url and data", file: "bytes or uri", kind: "application/a2a+json",
	data: anything,
	sent: func(r spec.SendMessageResult) (any, error) { return event10(r, true) },
	task: func(t *spec.Task) (any, error) { return newTimedTask(t), nil },
	list: func(l *spec.ListTasksResponse) (any, error) {
		out := timedList{l, make([]timedTask, len(l.Tasks))}
		for i, t := range l.Tasks {
			out.Tasks[i] = newTimedTask(t)
		}
		return out, nil
	},
	event:  event10,
	push:   func(c *spec.PushConfig) (any, error) { return c, nil },
	pushes: func(l []*spec.PushConfig) (any, error) { return spec.ListTaskPushConfigResponse{Configs: l}, nil },
	empty:  struct{}{},
}

func event10(ev spec.Event, _ bool) (any, error) {
	switch ev := ev.(type) {
	case *spec.Task:
		return taskEvent{newTimedTask(ev)}, nil
	case *spec.TaskStatusUpdateEvent:
		return statusEvent{timedUpdate{ev, timed(ev.Status)}}, nil
	}
	return spec.StreamResponse{Event: ev}, nil
}

// v03 is version 0.3 over JSON-RPC, which tells kinds apart by a member of that name.
var v03 = vocabulary{
	version: surface.A2A03, contents: "text, file and data", file: "bytes or uri",
	data: object,
	sent: func(r spec.SendMessageResult) (any, error) { return a2av0.FromV1Event(r) },
	task: func(t *spec.Task) (any, error) { return a2av0.FromV1Task(t), nil },
	list: func(l *spec.ListTasksResponse) (any, error) {
		out := sizedList{newList(l), l.PageSize}
		for i, t := range l.Tasks {
			out.Tasks[i] = a2av0.FromV1Task(t)
		}
		return out, nil
	},
	event: func(ev spec.Event, final bool) (any, error) {
		if status, ok := ev.(*spec.TaskStatusUpdateEvent); ok {
			out := a2av0.FromV1TaskStatusUpdateEvent(status)
			out.Final = final
			return out, nil
		}
		return a2av0.FromV1Event(ev)
	},
	push: func(c *spec.PushConfig) (any, error) { return a2av0.FromV1PushConfig(c), nil },
	pushes: func(l []*spec.PushConfig) (any, error) {
		out := make([]any, len(l))
		for i, c := range l {
			out[i] = a2av0.FromV1PushConfig(c)
		}
		return out, nil
	},
}

// v03REST is version 0.3 over REST, which says everything as its Protocol Buffers do.
var v03REST = vocabulary{
	version: surface.A2A03, contents: "text, file and data", file: "fileWithBytes or fileWithUri", twice: true, kind: "application/json",
	data: func(raw json.RawMessage, at string) (spec.PartContent, error) {
		var wrapped struct {
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(raw, &wrapped) != nil || !given(wrapped.Data) {
			return nil, agentsvc.Invalid(at+".data", "must be a JSON object")
		}
		return object(wrapped.Data, at+".data")
	},
	sent: func(r spec.SendMessageResult) (any, error) { return raw(pbjson.ToProtoSendMessageResult(objects(r))) },
	task: func(t *spec.Task) (any, error) { return raw(pbjson.ToProtoTask(objects(t))) },
	list: func(l *spec.ListTasksResponse) (any, error) {
		out := newList(l)
		for i, t := range l.Tasks {
			var err error
			if out.Tasks[i], err = raw(pbjson.ToProtoTask(objects(t))); err != nil {
				return nil, err
			}
		}
		return out, nil
	},
	event: func(ev spec.Event, final bool) (any, error) {
		body, err := pbjson.ToProtoStreamEvent(objects(ev))
		if _, status := ev.(*spec.TaskStatusUpdateEvent); err != nil || !status {
			return json.RawMessage(body), err
		}
		var out pbjson.StreamResponse
		if err = json.Unmarshal(body, &out); err == nil {
			out.StatusUpdate.Final = final
		}
		return out, err
	},
	push: func(c *spec.PushConfig) (any, error) { return raw(pbjson.ToProtoPushConfigResponse(c)) },
	pushes: func(l []*spec.PushConfig) (any, error) {
		out := struct {
			Configs []json.RawMessage `json:"configs"`
		}{make([]json.RawMessage, len(l))}
		for i, c := range l {
			var err error
			if out.Configs[i], err = pbjson.ToProtoPushConfigResponse(c); err != nil {
				return nil, err
			}
		}
		return out, nil
	},
}

// objects returns ev with data that is no object as the only member of one, as the library says it in the other bindings of
// version 0.3, in which data is always an object.
func objects[E spec.Event](ev E) E {
	for p := range Parts(ev) {
		d, ok := p.Content.(spec.Data)
		if _, object := d.Value.(map[string]any); ok && !object {
			p.Content, p.Metadata = spec.Data{Value: map[string]any{"value": d.Value}}, maps.Clone(p.Metadata)
			p.SetMeta("data_part_compat", true)
		}
	}
	return ev
}

func raw(body []byte, err error) (any, error) { return json.RawMessage(body), err }

// anything reads data that may be any JSON value.
func anything(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, agentsvc.Invalid(at, "must be JSON")
	}
	return spec.Data{Value: value}, nil
}

// object reads data that must be a JSON object.
func object(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value map[string]any
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return nil, agentsvc.Invalid(at, "must be a JSON object")
	}
	return spec.Data{Value: value}, nil
}

const versionHeader = "A2A-Version"

// patch is what a version has behind its first two numbers, which does not count (A2A 1.0, 3.6).
var patch = regexp.MustCompile(`^\.[0-9]+$`)

// Spoken returns the version that a request names in its header or else its query, "" if it names none. It returns a
// [surface.ErrVersion] for one that is not among versions.
func Spoken(r *http.Request, versions ...string) (string, error) {
	named := r.Header.Get(versionHeader)
	if named == "" && r.URL.RawQuery != "" {
		named = r.URL.Query().Get(versionHeader)
	}
	if named == "" {
		return "", nil
	}
	for _, v := range versions {
		if rest, ok := strings.CutPrefix(named, v); ok && (rest == "" || patch.MatchString(rest)) {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: %.20q is not among %q", surface.ErrVersion, named, versions)
}
