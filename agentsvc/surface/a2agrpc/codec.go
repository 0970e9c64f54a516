package a2agrpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"stoa/agentsvc"
)

// incoming is a message that is about to be decoded, before which admit is asked whether it may, given its size.
type incoming struct {
	into  any
	admit func(size int) error
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
	if in.wrong = in.admit(data.Len()); in.wrong != nil {
		return nil
	}
	if err := c.CodecV2.Unmarshal(data, in.into); err != nil {
		in.wrong = agentsvc.Invalid("", "the message does not decode: %v", err)
	}
	return nil
}
