package a2agrpc

import (
	spec "github.com/a2aproject/a2a-go/v2/a2a"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc/surface/a2a"
)

// wrapperKey is the only member of the object that encloses data of version 1.0 between this package and the
// library. In that version data may be any JSON value, but the library accepts and returns objects only. Data is
// wrapped right after a message is received and right before the library encodes one; it is unwrapped in the
// opposite places. On the wire and in domain types it is unchanged.
const wrapperKey = "value"

// wrapData returns ev with its data wrapped, for an event that the library will encode. Version 0.3 is unchanged:
// package a2a handles its data. ev must have been created for this response, because its parts change.
func wrapData[E spec.Event](c *call, ev E) E {
	if c.version != version10 {
		return ev
	}
	for p := range a2a.AllParts(ev) {
		if d, ok := p.Content.(spec.Data); ok {
			p.Content = spec.Data{Value: map[string]any{wrapperKey: d.Value}}
		}
	}
	return ev
}

// unwrapData returns m, decoded by the library, with its data as the client sent it.
func (c *call) unwrapData(m *spec.Message) *spec.Message {
	if c.version != version10 {
		return m
	}
	for p := range a2a.AllParts(m) {
		if object, ok := p.Data().(map[string]any); ok {
			p.Content = spec.Data{Value: object[wrapperKey]}
		}
	}
	return m
}

// wrapMessageData wraps the data of a received Protocol Buffers message, in place, before the library decodes it.
func wrapMessageData(m any) {
	forEachData(m, func(d *pb10.Part_Data) {
		d.Data = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{wrapperKey: d.Data}})
	})
}

// unwrapMessageData unwraps the data of a Protocol Buffers message that the library has encoded, in place, before
// it is sent.
func unwrapMessageData(m any) {
	forEachData(m, func(d *pb10.Part_Data) { d.Data = d.Data.GetStructValue().GetFields()[wrapperKey] })
}

// forEachData calls do for each data part in a message of version 1.0. It lists every message type that can contain
// parts; a type that is missing here would show wrapped data to clients.
func forEachData(m any, do func(*pb10.Part_Data)) {
	var parts []*pb10.Part
	switch m := m.(type) {
	case *pb10.SendMessageRequest:
		forEachData(m.GetMessage(), do)
	case *pb10.SendMessageResponse:
		forEachData(m.GetTask(), do)
		forEachData(m.GetMessage(), do)
	case *pb10.StreamResponse:
		forEachData(m.GetTask(), do)
		forEachData(m.GetMessage(), do)
		forEachData(m.GetStatusUpdate().GetStatus().GetMessage(), do)
		forEachData(m.GetArtifactUpdate().GetArtifact(), do)
	case *pb10.ListTasksResponse:
		for _, t := range m.GetTasks() {
			forEachData(t, do)
		}
	case *pb10.Task:
		forEachData(m.GetStatus().GetMessage(), do)
		for _, entry := range m.GetHistory() {
			forEachData(entry, do)
		}
		for _, a := range m.GetArtifacts() {
			forEachData(a, do)
		}
	case *pb10.Message:
		parts = m.GetParts()
	case *pb10.Artifact:
		parts = m.GetParts()
	}
	for _, p := range parts {
		if d, ok := p.GetContent().(*pb10.Part_Data); ok {
			do(d)
		}
	}
}
