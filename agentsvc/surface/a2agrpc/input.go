package a2agrpc

import (
	"fmt"
	"math"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
)

// checkInput returns an error with [agentsvc.CodeInvalid] for a message with values that the library would ignore or
// replace silently: negative numbers, unknown enumeration values, data that is null, and numbers that JSON cannot
// represent (NaN, infinity). For data that is nested too deeply it returns an error with [apierror.CodeBodyTooLarge].
func checkInput(m proto.Message) error { return checkMessage(m.ProtoReflect(), "", 0) }

// checkMessage checks m and everything in it. at is the JSON path of m, "" for the message itself; depth counts the
// levels of google.protobuf.Struct and ListValue, because those become levels of JSON.
func checkMessage(m protoreflect.Message, at string, depth int) (wrong error) {
	if depth > decode.MaxDepth {
		return apierror.NewTooDeepError(decode.MaxDepth)
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
	// Range visits the populated fields only: what is not set cannot be wrong.
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		wrong = checkField(f, v, at, depth)
		return wrong == nil
	})
	return wrong
}

// isNull reports whether v is null or has no kind, which Protocol Buffers allow and JSON does not.
func isNull(v *structpb.Value) bool {
	_, null := v.GetKind().(*structpb.Value_NullValue)
	return null || v.GetKind() == nil
}

// checkField checks one field; at is the path of its message.
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
	// The keys of a map are not part of the path: they are the client's own data and may be of any length.
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

// checkValue checks one value; at is its own path. All integers of the protocol are counts or sizes, so none may be
// negative.
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
