package a2agrpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// valueCounter is what has been found in the bytes of a message so far.
type valueCounter struct {
	values int
	err    error
}

// countValues returns how many messages, texts and numbers b holds, a message of d, and refuses one with too many of them or nested
// too deeply. It makes nothing of the bytes: an empty message, two bytes here, takes a hundred and more when it is decoded.
func countValues(d protoreflect.MessageDescriptor, b []byte) (values int, err error) {
	c := &valueCounter{values: 1}
	c.countMessage(d, b, 0)
	return c.values, c.err
}

// maxNesting bounds how deeply messages may lie in each other: a level of data takes three.
const maxNesting = 4 * surface.MaxDepth

func (c *valueCounter) countMessage(d protoreflect.MessageDescriptor, b []byte, depth int) {
	if depth > maxNesting {
		c.err = agentsvc.NewInvalidError("message", "is nested more than %d levels deep", surface.MaxDepth)
		return
	}
	items := 0 // of all lists of the message together
	for len(b) > 0 && c.err == nil {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return // what does not decode is refused when it is decoded
		}
		b = b[n:]
		value := protowire.ConsumeFieldValue(number, kind, b)
		if value < 0 {
			return
		}
		if c.values++; c.values > surface.MaxValues {
			c.err = surface.NewTooManyError("values", surface.MaxValues)
			return
		}
		f := d.Fields().ByNumber(number)
		if f != nil && f.IsList() && d.FullName().Parent() != "google.protobuf" {
			if items++; items > surface.MaxList {
				c.err = surface.NewTooManyError("items in a list", surface.MaxList)
				return
			}
		}
		if f != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			if f.Message() != nil {
				c.countMessage(f.Message(), inner, depth+1)
			} else if f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind {
				c.values += len(inner) // packed numbers
			}
		}
		b = b[value:]
	}
}
