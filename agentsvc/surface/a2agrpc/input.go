package a2agrpc

import (
	"fmt"
	"math"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// checkInput returns what is wrong with a message that the protocol's library would pass over in silence: a number that is negative, a
// word of an enumeration that nobody knows, data that is null, or that JSON could not hold.
func checkInput(m proto.Message) error { return checkMessage(m.ProtoReflect(), "", 0) }

func checkMessage(m protoreflect.Message, at string, depth int) (wrong error) {
	if depth > surface.MaxDepth {
		return agentsvc.NewInvalidError("message", "is nested more than %d levels deep", surface.MaxDepth)
	}
	switch v := m.Interface().(type) {
	case *structpb.Value:
		if n, ok := v.GetKind().(*structpb.Value_NumberValue); ok && (math.IsNaN(n.NumberValue) || math.IsInf(n.NumberValue, 0)) {
			return agentsvc.NewInvalidError(at, "holds a number that JSON does not have")
		}
	case *pb10.Part:
		if d, ok := v.GetContent().(*pb10.Part_Data); ok && isNull(d.Data) {
			return agentsvc.NewInvalidError(at+".data", "must not be null")
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		wrong = checkField(f, v, at, depth)
		return wrong == nil
	})
	return wrong
}

// isNull reports whether v is null, or says nothing of what it is.
func isNull(v *structpb.Value) bool {
	_, null := v.GetKind().(*structpb.Value_NullValue)
	return null || v.GetKind() == nil
}

func checkField(f protoreflect.FieldDescriptor, v protoreflect.Value, at string, depth int) (wrong error) {
	name := f.JSONName()
	if at != "" {
		name = at + "." + name
	}
	if d := f.Message(); d != nil && (d.FullName() == "google.protobuf.Struct" || d.FullName() == "google.protobuf.ListValue") {
		depth++
	}
	switch {
	case f.IsList():
		for i := range v.List().Len() {
			if wrong = checkValue(f, v.List().Get(i), fmt.Sprintf("%s[%d]", name, i), depth); wrong != nil {
				return wrong
			}
		}
	case f.IsMap():
		v.Map().Range(func(_ protoreflect.MapKey, x protoreflect.Value) bool {
			wrong = checkValue(f.MapValue(), x, at, depth)
			return wrong == nil
		})
	default:
		wrong = checkValue(f, v, name, depth)
	}
	return wrong
}

func checkValue(f protoreflect.FieldDescriptor, v protoreflect.Value, at string, depth int) error {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return checkMessage(v.Message(), at, depth)
	case protoreflect.EnumKind:
		if f.Enum().Values().ByNumber(v.Enum()) == nil {
			return agentsvc.NewInvalidError(at, "there is no %s %d", f.Enum().Name(), v.Enum())
		}
	case protoreflect.Int32Kind:
		if v.Int() < 0 {
			return agentsvc.NewInvalidError(at, "must not be negative")
		}
	}
	return nil
}
