package a2agrpc

import (
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// incomingMessage is a message that is about to be decoded, before which admit is asked whether it may, given its bytes and what they
// hold.
type incomingMessage struct {
	target  any
	reserve func(size, values int) error
	failure error // why it was not decoded
}

// reservingCodec is gRPC's codec, which knows of [incomingMessage].
type reservingCodec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return reservingCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes into v, or into what v is for, which notes itself why it could not be: of an error that is returned here
// gRPC would tell in its own words.
func (c reservingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incomingMessage)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	in.failure = in.decodeMessage(data)
	return nil
}

func (in *incomingMessage) decodeMessage(data mem.BufferSlice) error {
	size := data.Len()
	message, ok := in.target.(protobuf.Message)
	if size > surface.MaxMessage || !ok {
		return surface.ErrMessageTooLong
	}
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

// rejectingDecompressor stands in the place of what would decompress messages: a few bytes of them may become gigabytes.
type rejectingDecompressor struct{ name string }

var errCompressed = errors.New("messages must not be compressed")

func (r rejectingDecompressor) Type() string                 { return r.name }
func (r rejectingDecompressor) Do(io.Reader) ([]byte, error) { return nil, errCompressed }
