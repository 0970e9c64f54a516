package a2agrpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
)

// valueCounter is the state of countValues: values so far, and the bound that was exceeded.
type valueCounter struct {
	values int
	err    error
}

// countValues returns how many messages, texts and numbers the encoded message b of type d contains. It returns an
// error for more than decode.MaxValues, for a list with more than decode.MaxList items, and for too deep nesting.
// It does not decode: an empty message takes two bytes in b and more than a hundred in memory, so the memory must
// be known before.
func countValues(d protoreflect.MessageDescriptor, b []byte) (values int, err error) {
	c := &valueCounter{values: 1}
	c.countMessage(d, b, 0)
	return c.values, c.err
}

// maxNesting bounds the nesting of Protocol Buffers messages. One level of JSON takes up to three of them (Value,
// Struct, map entry).
const maxNesting = 4 * decode.MaxDepth

// countMessage counts the fields of the message b and descends into the messages in it. b is not validated: bytes
// that do not parse are left for the decoder to refuse.
func (c *valueCounter) countMessage(d protoreflect.MessageDescriptor, b []byte, depth int) {
	if depth > maxNesting {
		c.err = apierror.NewTooDeepError(decode.MaxDepth)
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
		if c.values++; c.values > decode.MaxValues {
			c.err = apierror.NewTooManyError("values", decode.MaxValues)
			return
		}
		f := d.Fields().ByNumber(number)
		// The lists of google.protobuf (ListValue) are values of JSON and are counted as such, without MaxList.
		if f != nil && f.IsList() && d.FullName().Parent() != "google.protobuf" {
			if items++; items > decode.MaxList {
				c.err = apierror.NewTooManyError("items in a list", decode.MaxList)
				return
			}
		}
		if f != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			if f.Message() != nil {
				c.countMessage(f.Message(), inner, depth+1)
			} else if f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind {
				// Packed numbers: at least one byte each, so this is an upper bound.
				c.values += len(inner)
			}
		}
		b = b[value:]
	}
}
