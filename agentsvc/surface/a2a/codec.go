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

// versionCodec is how a version of the protocol says things, in one of its bindings.
type versionCodec struct {
	version      string
	partKinds    string // what a part may have one of
	fileKinds    string // what a file has either of
	doubleBase64 bool   // clients encode the bytes of files twice
	mediaType    string // the media type of answers over REST

	decodeData       func(raw json.RawMessage, at string) (spec.PartContent, error)
	encodeSendResult func(spec.SendMessageResult) (any, error) // what a message is answered with
	encodeTask       func(*spec.Task) (any, error)
	encodeList       func(*spec.ListTasksResponse) (any, error)
	encodeEvent      func(ev spec.Event, final bool) (any, error)

	encodePush     func(*spec.PushConfig) (any, error)
	encodePushList func([]*spec.PushConfig) (any, error)
	emptyResult    any // what a call is answered with that has no answer, nil over REST: an empty body
}

// codec10 is version 1.0, in which both bindings say the same.
var codec10 = versionCodec{
	version: surface.A2A10, partKinds: "text, raw, url and data", fileKinds: "bytes or uri", mediaType: "application/a2a+json",
	decodeData:       decodeAny,
	encodeSendResult: func(r spec.SendMessageResult) (any, error) { return encodeEvent10(r, true) },
	encodeTask:       func(t *spec.Task) (any, error) { return newTimedTask(t), nil },
	encodeList: func(l *spec.ListTasksResponse) (any, error) {
		out := timedList{l, make([]timedTask, len(l.Tasks))}
		for i, t := range l.Tasks {
			out.Tasks[i] = newTimedTask(t)
		}
		return out, nil
	},
	encodeEvent:    encodeEvent10,
	encodePush:     func(c *spec.PushConfig) (any, error) { return c, nil },
	encodePushList: func(l []*spec.PushConfig) (any, error) { return spec.ListTaskPushConfigResponse{Configs: l}, nil },
	emptyResult:    struct{}{},
}

func encodeEvent10(ev spec.Event, _ bool) (any, error) {
	switch ev := ev.(type) {
	case *spec.Task:
		return taskEvent{newTimedTask(ev)}, nil
	case *spec.TaskStatusUpdateEvent:
		return statusEvent{timedUpdate{ev, newTimedStatus(ev.Status)}}, nil
	}
	return spec.StreamResponse{Event: ev}, nil
}

// codec03 is version 0.3 over JSON-RPC, which tells kinds apart by a member of that name.
var codec03 = versionCodec{
	version: surface.A2A03, partKinds: "text, file and data", fileKinds: "bytes or uri",
	decodeData:       decodeObject,
	encodeSendResult: func(r spec.SendMessageResult) (any, error) { return a2av0.FromV1Event(r) },
	encodeTask:       func(t *spec.Task) (any, error) { return a2av0.FromV1Task(t), nil },
	encodeList: func(l *spec.ListTasksResponse) (any, error) {
		out := sizedList{newList03(l), l.PageSize}
		for i, t := range l.Tasks {
			out.Tasks[i] = a2av0.FromV1Task(t)
		}
		return out, nil
	},
	encodeEvent: func(ev spec.Event, final bool) (any, error) {
		if status, ok := ev.(*spec.TaskStatusUpdateEvent); ok {
			out := a2av0.FromV1TaskStatusUpdateEvent(status)
			out.Final = final
			return out, nil
		}
		return a2av0.FromV1Event(ev)
	},
	encodePush: func(c *spec.PushConfig) (any, error) { return a2av0.FromV1PushConfig(c), nil },
	encodePushList: func(l []*spec.PushConfig) (any, error) {
		out := make([]any, len(l))
		for i, c := range l {
			out[i] = a2av0.FromV1PushConfig(c)
		}
		return out, nil
	},
}

// codec03REST is version 0.3 over REST, which says everything as its Protocol Buffers do.
var codec03REST = versionCodec{
	version: surface.A2A03, partKinds: "text, file and data", fileKinds: "fileWithBytes or fileWithUri", doubleBase64: true, mediaType: "application/json",
	decodeData: func(raw json.RawMessage, at string) (spec.PartContent, error) {
		var wrapped struct {
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(raw, &wrapped) != nil || !isGiven(wrapped.Data) {
			return nil, agentsvc.NewInvalidError(at+".data", "must be a JSON object")
		}
		return decodeObject(wrapped.Data, at+".data")
	},
	encodeSendResult: func(r spec.SendMessageResult) (any, error) {
		return toRawMessage(pbjson.ToProtoSendMessageResult(wrapNonObjects(r)))
	},
	encodeTask: func(t *spec.Task) (any, error) { return toRawMessage(pbjson.ToProtoTask(wrapNonObjects(t))) },
	encodeList: func(l *spec.ListTasksResponse) (any, error) {
		out := newList03(l)
		for i, t := range l.Tasks {
			var err error
			if out.Tasks[i], err = toRawMessage(pbjson.ToProtoTask(wrapNonObjects(t))); err != nil {
				return nil, err
			}
		}
		return out, nil
	},
	encodeEvent: func(ev spec.Event, final bool) (any, error) {
		body, err := pbjson.ToProtoStreamEvent(wrapNonObjects(ev))
		if _, status := ev.(*spec.TaskStatusUpdateEvent); err != nil || !status {
			return json.RawMessage(body), err
		}
		var out pbjson.StreamResponse
		if err = json.Unmarshal(body, &out); err == nil {
			out.StatusUpdate.Final = final
		}
		return out, err
	},
	encodePush: func(c *spec.PushConfig) (any, error) { return toRawMessage(pbjson.ToProtoPushConfigResponse(c)) },
	encodePushList: func(l []*spec.PushConfig) (any, error) {
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

// wrapNonObjects returns ev with data that is no object as the only member of one, as the library says it in the other bindings of
// version 0.3, in which data is always an object.
func wrapNonObjects[E spec.Event](ev E) E {
	for p := range AllParts(ev) {
		d, ok := p.Content.(spec.Data)
		if _, object := d.Value.(map[string]any); ok && !object {
			p.Content, p.Metadata = spec.Data{Value: map[string]any{"value": d.Value}}, maps.Clone(p.Metadata)
			p.SetMeta("data_part_compat", true)
		}
	}
	return ev
}

func toRawMessage(body []byte, err error) (any, error) { return json.RawMessage(body), err }

// decodeAny reads data that may be any JSON value.
func decodeAny(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, agentsvc.NewInvalidError(at, "must be JSON")
	}
	return spec.Data{Value: value}, nil
}

// decodeObject reads data that must be a JSON object.
func decodeObject(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value map[string]any
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return nil, agentsvc.NewInvalidError(at, "must be a JSON object")
	}
	return spec.Data{Value: value}, nil
}

const versionHeader = "A2A-Version"

// patchSuffix is what a version has behind its first two numbers, which does not count (A2A 1.0, 3.6).
var patchSuffix = regexp.MustCompile(`^\.[0-9]+$`)

// NegotiateVersion returns the version that a request names in its header or else its query, "" if it names none. It returns a
// [surface.ErrVersion] for one that is not among versions.
func NegotiateVersion(r *http.Request, versions ...string) (string, error) {
	named := r.Header.Get(versionHeader)
	if named == "" && r.URL.RawQuery != "" {
		named = r.URL.Query().Get(versionHeader)
	}
	if named == "" {
		return "", nil
	}
	for _, v := range versions {
		if suffix, ok := strings.CutPrefix(named, v); ok && (suffix == "" || patchSuffix.MatchString(suffix)) {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: %.20q is not among %q", surface.ErrVersion, named, versions)
}
