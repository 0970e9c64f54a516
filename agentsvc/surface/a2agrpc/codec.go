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

// incoming is a message that is about to be decoded, before which admit is asked whether it may, given its bytes and what they
// hold.
type incoming struct {
	into  any
	admit func(size, values int) error
	wrong error // why it was not decoded
}

// admitting is gRPC's codec, which knows of [incoming].
type admitting struct{ encoding.CodecV2 }

func codec() encoding.CodecV2 { return admitting{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes into v, or into what v is for, which notes itself why it could not be: of an error that is returned here
// gRPC would tell in its own words.
func (c admitting) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	in.wrong = in.decode(data)
	return nil
}

func (in *incoming) decode(data mem.BufferSlice) error {
	size := data.Len()
	message, ok := in.into.(protobuf.Message)
	if size > surface.MaxMessage || !ok {
		return surface.ErrTooLong
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	values, err := countValues(message.ProtoReflect().Descriptor(), whole.ReadOnlyData())
	if err != nil {
		return err
	}
	if err := in.admit(size, values); err != nil {
		return err
	}
	if err := protobuf.Unmarshal(whole.ReadOnlyData(), message); err != nil {
		return agentsvc.Invalid("", "the message does not decode: %v", err)
	}
	return nil
}

// refusing stands in the place of what would decompress messages: a few bytes of them may become gigabytes.
type refusing struct{ name string }

var errCompressed = errors.New("messages must not be compressed")

func (r refusing) Type() string                 { return r.name }
func (r refusing) Do(io.Reader) ([]byte, error) { return nil, errCompressed }
