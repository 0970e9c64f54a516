package a2agrpc

import (
	spec "github.com/a2aproject/a2a-go/v2/a2a"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc/surface/a2a"
)

// In version 1.0 data is any JSON value, and the protocol's library takes and gives objects alone. All data of that version
// passes it as the only member of an object, whichever way it goes; on the wire and in the house it stands as it is.
const wrapperKey = "value"

// wrapData returns ev, which is about to be told, with its data enclosed where the library wants that.
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

// unwrapData returns a message that the library has decoded with its data as the client sent it.
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

// wrapMessageData encloses the data of a message that came.
func wrapMessageData(m any) {
	forEachData(m, func(d *pb10.Part_Data) {
		d.Data = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{wrapperKey: d.Data}})
	})
}

// unwrapMessageData frees the data of a message that goes.
func unwrapMessageData(m any) {
	forEachData(m, func(d *pb10.Part_Data) { d.Data = d.Data.GetStructValue().GetFields()[wrapperKey] })
}

// forEachData calls do with all data that a message of version 1.0 holds.
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
