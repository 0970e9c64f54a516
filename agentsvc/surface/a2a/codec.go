package a2a

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2apb/v0/pbjson"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/apierror"
)

// versionCodec holds what differs between the versions and bindings: names in error texts and the encoding of every
// result. There are three, codec10, codec03 and codec03REST, and they are read-only. The encode functions return a
// value for encoding/json or already encoded JSON.
type versionCodec struct {
	version      string
	partKinds    string // the contents that a part may have, for error texts
	fileKinds    string // the contents that a file may have, for error texts
	doubleBase64 bool   // clients encode the bytes of files in base64 twice
	omitsFalse   bool   // clients leave out members whose value is false (proto3), such as configuration.blocking
	needsKind    bool   // parts must have a member kind
	// refusesUnknown says that unknown params over JSON-RPC, and unknown names in the query over REST, are errors. In 1.0 they
	// may be those of a later minor version, which the specification demands to ignore (5.7).
	refusesUnknown bool
	mediaType      string // Content-Type of REST responses; unused over JSON-RPC

	decodeData func(raw json.RawMessage, at string) (spec.PartContent, error)
	// encodeSendResult encodes the result of SendMessage: a task or a message.
	encodeSendResult func(spec.SendMessageResult) (any, error)
	encodeTask       func(*spec.Task) (any, error)
	encodeList       func(*spec.ListTasksResponse) (any, error)
	// encodeEvent encodes an event of a stream. final is only used by 0.3, whose status updates say whether they
	// are the last.
	encodeEvent func(ev spec.Event, final bool) (any, error)

	encodePush     func(*spec.PushConfig) (any, error)
	encodePushList func([]*spec.PushConfig) (any, error)
	// emptyResult is the result of a method without one: an empty object in 1.0; nil in 0.3, which is null over
	// JSON-RPC and 204 without a body over REST.
	emptyResult any
}

// codec10 is version 1.0. JSON-RPC and REST have the same JSON.
var codec10 = versionCodec{
	version: agentcard.A2A10, partKinds: "text, raw, url and data", fileKinds: "bytes or uri", mediaType: "application/a2a+json",
	decodeData:       decodeAny,
	encodeSendResult: func(r spec.SendMessageResult) (any, error) { return encodeEvent10(r, true) },
	encodeTask:       func(t *spec.Task) (any, error) { return newTask10(t), nil },
	encodeList: func(l *spec.ListTasksResponse) (any, error) {
		out := list10{l, make([]wireTask, len(l.Tasks))}
		for i, t := range l.Tasks {
			out.Tasks[i] = newTask10(t)
		}
		return out, nil
	},
	encodeEvent:    encodeEvent10,
	encodePush:     func(c *spec.PushConfig) (any, error) { return c, nil },
	encodePushList: func(l []*spec.PushConfig) (any, error) { return spec.ListTaskPushConfigResponse{Configs: l}, nil },
	emptyResult:    struct{}{},
}

// encodeEvent10 encodes an event as a StreamResponse of 1.0. Tasks and statuses have the types of wire.go.
func encodeEvent10(ev spec.Event, _ bool) (any, error) {
	switch ev := ev.(type) {
	case *spec.Task:
		return taskEvent{newTask10(ev)}, nil
	case *spec.TaskStatusUpdateEvent:
		return statusEvent{statusUpdate10{ev, newStatus10(ev.Status)}}, nil
	}
	return spec.StreamResponse{Event: ev}, nil
}

// codec03 is version 0.3 over JSON-RPC, whose objects have a member kind. The library's package a2av0 converts the
// types of 1.0 to those of 0.3.
var codec03 = versionCodec{
	version: agentcard.A2A03, partKinds: "text, file and data", fileKinds: "bytes or uri", needsKind: true, refusesUnknown: true,
	decodeData: decodeObject,
	encodeSendResult: func(r spec.SendMessageResult) (any, error) {
		if t, ok := r.(*spec.Task); ok {
			return newTask03(a2av0.FromV1Task(t)), nil
		}
		return a2av0.FromV1Event(r)
	},
	encodeTask: func(t *spec.Task) (any, error) { return newTask03(a2av0.FromV1Task(t)), nil },
	encodeList: func(l *spec.ListTasksResponse) (any, error) {
		out := sizedList{newList03(l), l.PageSize}
		for i, t := range l.Tasks {
			out.Tasks[i] = newTask03(a2av0.FromV1Task(t))
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

// codec03REST is version 0.3 over REST, whose JSON is that of its Protocol Buffers. The library's package pbjson
// encodes it.
var codec03REST = versionCodec{
	version: agentcard.A2A03, partKinds: "text, file and data", fileKinds: "fileWithBytes or fileWithUri", doubleBase64: true, omitsFalse: true, refusesUnknown: true, mediaType: "application/json",
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
		// The library has no parameter for final, so a status update is decoded again and the member set.
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

// wrapNonObjects changes the parts of ev in place and returns ev: data that is not a JSON object becomes {"value":
// data}, with data_part_compat in the metadata of its part. Data of version 0.3 is always an object. Package a2av0
// does the same for codec03; pbjson does not. ev must have been created for this response, because its parts
// change.
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

// toRawMessage adapts the result of pbjson's functions to those of versionCodec.
func toRawMessage(body []byte, err error) (any, error) { return json.RawMessage(body), err }

// decodeAny decodes data of version 1.0, which may be any JSON value.
func decodeAny(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, agentsvc.NewInvalidError(at, "must be JSON")
	}
	return spec.Data{Value: value}, nil
}

// decodeObject decodes data of version 0.3, which must be a JSON object.
func decodeObject(raw json.RawMessage, at string) (spec.PartContent, error) {
	var value map[string]any
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return nil, agentsvc.NewInvalidError(at, "must be a JSON object")
	}
	return spec.Data{Value: value}, nil
}

// versionHeader is the request header and the query parameter that name the version (A2A 1.0, 3.6).
const versionHeader = "A2A-Version"

// patchSuffix matches the patch number of a version such as 1.0.2, which is not part of the negotiation (A2A 1.0,
// 3.6).
var patchSuffix = regexp.MustCompile(`^\.[0-9]+$`)

// NegotiateVersion returns which of versions the request names in the header A2A-Version or else in the query, or
// "" if it names none. It returns a [apierror.CodeVersion] for a version that is not among them.
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
	return "", agentsvc.NewError(apierror.CodeVersion, "this version of the protocol is not supported: %.20q is not among %q", named, versions)
}
