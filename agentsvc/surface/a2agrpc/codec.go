package a2agrpc

import (
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/requestbody"
)

// incomingMessage is passed to the codec in the place of the message to decode. It makes the codec call reserve
// between receiving and decoding.
type incomingMessage struct {
	target any // the message to decode into
	// reserve reserves memory for size bytes that hold this many values; an error prevents decoding.
	reserve func(size, values int) error
	failure error // why the message was not decoded; written by the codec
}

// reservingCodec is gRPC's Protocol Buffers codec with support for incomingMessage. Other messages (reflection,
// responses) are decoded as usual.
type reservingCodec struct{ encoding.CodecV2 }

// newCodec wraps the codec that gRPC has registered for Protocol Buffers.
func newCodec() encoding.CodecV2 { return reservingCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes data into v. For an incomingMessage it stores an error in failure and returns nil: gRPC would
// wrap a returned error in a status of its own.
func (c reservingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incomingMessage)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	in.failure = in.decodeMessage(data)
	return nil
}

// decodeMessage decodes the message after it has counted its values and reserved the memory. The order matters: a
// small message can decode into a large structure (see countValues).
func (in *incomingMessage) decodeMessage(data mem.BufferSlice) error {
	size := data.Len()
	message, ok := in.target.(protobuf.Message)
	if size > requestbody.MaxMessage || !ok {
		return requestbody.ErrMessageTooLong
	}
	// The buffer is reused after Free; protobuf.Unmarshal copies what it keeps.
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	values, err := countValues(message.ProtoReflect().Descriptor(), buffer.ReadOnlyData())
	if err != nil {
		return err
	}
	if err := in.reserve(size, values); err != nil {
		return err
	}
	if err := protobuf.Unmarshal(buffer.ReadOnlyData(), message); err != nil {
		return agentsvc.NewInvalidError("", "the message does not decode: %v", err)
	}
	return nil
}

// rejectingDecompressor takes the place of gRPC's decompressor. A few compressed bytes can become gigabytes, and
// gRPC decompresses before any check of this package.
type rejectingDecompressor struct{ name string }

var errCompressed = errors.New("messages must not be compressed")

func (r rejectingDecompressor) Type() string                 { return r.name }
func (r rejectingDecompressor) Do(io.Reader) ([]byte, error) { return nil, errCompressed }
